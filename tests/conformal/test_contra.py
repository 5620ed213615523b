"""CONTRA: regions as images of a latent ball under a flow; its exact cases and traps."""

import copy
import pickle

import numpy as np
import pytest
from scipy.stats import chi, chi2
from sklearn.utils.estimator_checks import parametrize_with_checks

pytest.importorskip("torch", reason="needs the extra torch")

from assay.conformal.contra import FlowConformalRegressor
from assay.conformal.flow_density import FlowDensityRegressor
from assay.conformal.flow_region import FlowRegion
from assay.core.errors import AssayWarning, DataError, InfiniteSetWarning, MethodError

SMALL = {"n_layers": 2, "hidden": (16,), "max_epochs": 5, "random_state": 0}


class AffineFlow:
    """y = mu + slope x + L z: the law of a Gaussian given the first feature."""

    def __init__(self, lower, mu=0.0, slope=0.0):
        self.lower = np.atleast_2d(np.asarray(lower, dtype=np.float64))
        self.mu, self.slope = mu, slope

    def center(self, x):
        return self.mu + self.slope * np.asarray(x)[:, :1]

    def inverse(self, y, x):
        z = np.linalg.solve(self.lower, (y - self.center(x)).T).T
        return z, np.full(len(z), -np.linalg.slogdet(self.lower)[1])

    def forward(self, z, x):
        return z @ self.lower.T + self.center(x)


def banana(n, seed):
    rng = np.random.default_rng(seed)
    x, first = rng.uniform(-1, 1, n), rng.normal(size=n)
    return x[:, None], np.column_stack([first, first**2 + x + 0.2 * rng.normal(size=n)])


class BananaFlow:
    """The true transport of the banana: det dy/dz = 0.2 everywhere."""

    def inverse(self, y, x):
        second = (y[:, 1] - y[:, 0] ** 2 - np.asarray(x)[:, 0]) / 0.2
        return np.column_stack([y[:, 0], second]), np.full(len(y), -np.log(0.2))

    def forward(self, z, x):
        return np.column_stack([z[:, 0], z[:, 0] ** 2 + np.asarray(x)[:, 0] + 0.2 * z[:, 1]])


def shoelace(points):
    """(n,) areas of closed polygons (n, m, 2)."""
    x, y = points[..., 0], points[..., 1]
    return 0.5 * np.abs((x * np.roll(y, -1, axis=1) - y * np.roll(x, -1, axis=1)).sum(axis=1))


@pytest.fixture(scope="module")
def fitted():
    """Trained on 1,500 bananas, calibrated on 1,000 others."""
    return FlowConformalRegressor(n_layers=4, hidden=(32, 32), max_epochs=60, lr=5e-3, random_state=0).fit(
        *banana(1500, 0), *banana(1000, 1)
    )


@parametrize_with_checks(
    [FlowConformalRegressor(n_layers=2, hidden=(8,), max_epochs=3, random_state=0)],
    # score is an argument of the method, and so no method of the object
    expected_failed_checks=lambda _: {
        "check_fit_score_takes_y": "calls score",
        "check_n_features_in_after_fitting": "calls score",
        "check_pipeline_consistency": "calls score",
        "check_regressors_train": "calls score",
    },
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


# the exact cases


@pytest.mark.parametrize("n_samples", [1, 7, 256])
def test_volume_of_an_affine_flow_is_exact(n_samples):
    flow = AffineFlow([[2.0, 0.0], [0.5, 0.5]])
    region = FlowRegion(flow, np.zeros((3, 1)), 2.0, 2)
    np.testing.assert_allclose(region.volume(n_samples=n_samples), 12.566371, atol=5e-7)
    np.testing.assert_allclose(np.exp(region.log_volume(n_samples)), region.volume(n_samples=n_samples))


def test_volume_of_a_latent_cube_is_exact():
    region = FlowRegion(AffineFlow([[2.0, 0.0], [0.5, 0.5]]), np.zeros((3, 1)), 2.0, 2, norm="linf")
    np.testing.assert_allclose(region.volume(), 16.0, rtol=1e-12)


def test_an_affine_flow_gives_the_ellipsoid():
    lower = np.array([[2.0, 0.0], [0.5, 0.5]])
    flow = AffineFlow(lower, mu=[1.0, -1.0], slope=3.0)
    X, Y = np.random.default_rng(0).normal(size=(400, 1)), np.random.default_rng(1).normal(size=(400, 2))
    region = FlowRegion(flow, X, 1.3, 2)
    residual = Y - np.array([1.0, -1.0]) - 3 * X
    distance = np.sqrt(np.einsum("ni,ij,nj->n", residual, np.linalg.inv(lower @ lower.T), residual))
    np.testing.assert_array_equal(region.contains(Y), distance <= 1.3)
    half = 1.3 * np.sqrt(np.diag(lower @ lower.T))
    center = flow.center(X)
    np.testing.assert_allclose(region.bounding_box()[:, :, 0], center - half, atol=1e-3)
    np.testing.assert_allclose(region.bounding_box()[:, :, 1], center + half, atol=1e-3)


@pytest.mark.parametrize(("q", "radius"), [(1, 1.6449), (2, 2.1460), (4, 2.7892)])
def test_radius_of_standard_normal_outputs(q, radius):
    rng = np.random.default_rng(q)
    X, Y = np.zeros((400_000, 1)), rng.normal(size=(400_000, q))
    method = FlowConformalRegressor(AffineFlow(np.eye(q))).calibrate(X, Y)
    assert np.sqrt(chi2.ppf(0.9, q)) == pytest.approx(radius, abs=5e-5)
    assert method.predict_region(X[:1]).radius == pytest.approx(radius, abs=0.01)


def test_true_transport_of_the_banana_gives_the_oracle_volume():
    method = FlowConformalRegressor(BananaFlow()).calibrate(*banana(200_000, 0))
    X, Y = banana(20_000, 1)
    region = method.predict_region(X)
    assert region.volume()[0] == pytest.approx(np.pi * chi2.ppf(0.9, 2) * 0.2, rel=0.02)
    assert np.pi * chi2.ppf(0.9, 2) * 0.2 == pytest.approx(2.8935, abs=1e-4)
    assert region.contains(Y).mean() == pytest.approx(0.9, abs=0.01)


def test_learned_banana(fitted):
    X, Y = banana(3000, 2)
    region = fitted.predict_region(X)
    assert 0.87 < region.contains(Y).mean() < 0.93
    volume = region.volume()
    assert 2.6 < np.median(volume) < 3.8
    residual = banana(1000, 1)[1] - banana(1500, 0)[1].mean(axis=0)
    covariance = np.cov(banana(1500, 0)[1].T)
    distance = np.sort(np.einsum("ni,ij,nj->n", residual, np.linalg.inv(covariance), residual))
    ellipse = np.pi * distance[900] * np.sqrt(np.linalg.det(covariance))
    assert ellipse / volume.mean() > 4


def test_shoelace_area_is_the_volume(fitted):
    region = fitted.predict_region(banana(40, 3)[0])
    np.testing.assert_allclose(shoelace(region.boundary(2000)), region.volume(), rtol=0.02)
    np.testing.assert_allclose(shoelace(region.boundary(2000)), region.volume(n_samples=4096), rtol=3e-3)


def test_round_trip(fitted):
    X, _ = banana(500, 4)
    z = np.random.default_rng(0).normal(size=(500, 2))
    y = fitted.flow_.forward(z, X)
    back, logdet = fitted.flow_.inverse(y, X)
    assert np.abs(back - z).max() < 1e-10
    _, forward_logdet = fitted.flow_.forward_points(z[:, None], X)
    np.testing.assert_allclose(forward_logdet[:, 0], -logdet, atol=1e-10)


def test_equivariance():
    matrix, shift = np.array([[2.0, 1.0], [-0.3, 0.7]]), np.array([5.0, -3.0])

    class Moved(BananaFlow):
        def inverse(self, y, x):
            z, logdet = super().inverse(np.linalg.solve(matrix, (y - shift).T).T, x)
            return z, logdet - np.linalg.slogdet(matrix)[1]

        def forward(self, z, x):
            return super().forward(z, x) @ matrix.T + shift

    (X, Y), (Xt, Yt) = banana(500, 0), banana(700, 1)
    plain = FlowConformalRegressor(BananaFlow()).calibrate(X, Y).predict_region(Xt)
    moved = FlowConformalRegressor(Moved()).calibrate(X, Y @ matrix.T + shift).predict_region(Xt)
    np.testing.assert_array_equal(moved.contains(Yt @ matrix.T + shift), plain.contains(Yt))
    np.testing.assert_allclose(moved.volume(), plain.volume() * abs(np.linalg.det(matrix)), rtol=1e-9)


def test_outputs_in_other_units_change_nothing_but_the_volume():
    (X, Y), (Xc, Yc), (Xt, _) = banana(300, 0), banana(200, 1), banana(200, 2)
    factor, shift = np.array([1000.0, 0.01]), np.array([1e6, -7.0])
    plain = FlowConformalRegressor(**SMALL).fit(X, Y, Xc, Yc)
    moved = FlowConformalRegressor(**SMALL).fit(X, Y * factor + shift, Xc, Yc * factor + shift)
    np.testing.assert_allclose(moved.scores_, plain.scores_, rtol=1e-3)
    region = moved.predict_region(Xt)
    np.testing.assert_allclose(region.volume(), 10 * plain.predict_region(Xt).volume(), rtol=1e-2)


def test_untrained_flow_is_the_ball_around_the_mean():
    (X, Y), (Xc, Yc) = banana(300, 0), banana(200, 1)
    # a rate that moves nothing: the couplings stay the identity that they start as
    method = FlowConformalRegressor(n_layers=4, max_epochs=1, lr=1e-30, random_state=0).fit(X, Y, Xc, Yc)
    standard = (Yc - Y.mean(axis=0)) / Y.std(axis=0)
    np.testing.assert_allclose(method.scores_, np.linalg.norm(standard, axis=1), rtol=1e-9)
    region = method.predict_region(Xc)
    np.testing.assert_allclose(region.volume(), np.pi * region.radius**2 * Y.std(axis=0).prod(), rtol=1e-9)


# what a region can do


def test_levels_come_from_one_calibration_and_nest(fitted):
    X, Y = banana(500, 5)
    tight, middle, wide = fitted.predict_region(X, alpha=[0.5, 0.1, "0.01"])
    assert tight.radius < middle.radius < wide.radius
    assert (tight.contains(Y) <= middle.contains(Y)).all()
    assert (middle.contains(Y) <= wide.contains(Y)).all()
    assert (tight.volume() < wide.volume()).all()


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("q", [1, 2, 3])
def test_boundary_samples_and_box_belong_to_the_region(q, norm):
    rng = np.random.default_rng(q)
    X = rng.normal(size=(200, 2))
    Y = X[:, :1] + rng.normal(size=(200, q)) * (1 + np.abs(X[:, 1:]))
    flow = FlowDensityRegressor(2, (16,), max_epochs=10, random_state=0).fit(X, Y)
    region, smaller, larger = (FlowRegion(flow, X[:6], r, q, norm) for r in (1.7, 1.7 - 1e-9, 1.7 + 1e-9))
    border = region.boundary(64)
    assert border.shape == (6, 64, q)
    box = region.bounding_box()
    for point in np.moveaxis(border, 1, 0):
        assert larger.contains(point).all()
        assert not smaller.contains(point).any()
        assert (box[:, :, 0] - 0.02 * np.ptp(box, axis=2) <= point).all()
        assert (point <= box[:, :, 1] + 0.02 * np.ptp(box, axis=2)).all()
    draws = region.sample(300, random_state=1)
    assert draws.shape == (6, 300, q)
    assert all(larger.contains(point).all() for point in np.moveaxis(draws, 1, 0))
    assert not np.allclose(draws[:, 0], region.sample(300, random_state=2)[:, 0])


def test_samples_follow_the_flow_inside_the_region():
    region = FlowRegion(AffineFlow(np.eye(3)), np.zeros((1, 1)), 2.0, 3)
    length = np.linalg.norm(region.sample(20_000)[0], axis=1)
    for t in (0.5, 1.0, 1.5):
        assert (length <= t).mean() == pytest.approx(chi.cdf(t, 3) / chi.cdf(2.0, 3), abs=0.012)


def test_take_repeats_rows(fitted):
    X, Y = banana(5, 6)
    region = fitted.predict_region(X)
    rows = np.repeat([3, 0], 4)
    np.testing.assert_array_equal(region.take(rows).contains(Y[rows]), region.contains(Y)[rows])
    np.testing.assert_allclose(region.take(rows).volume(), region.volume()[rows])
    assert len(region.take(np.array([True, False, True, False, False]))) == 2


def test_pieces_do_not_matter(fitted):
    X, Y = banana(50, 7)
    whole = fitted.predict_region(X)
    single = [fitted.predict_region(X[i : i + 1]) for i in range(50)]
    np.testing.assert_allclose(np.concatenate([r.volume() for r in single]), whole.volume(), rtol=1e-6)
    np.testing.assert_array_equal(
        np.concatenate([r.contains(Y[i : i + 1]) for i, r in enumerate(single)]), whole.contains(Y)
    )
    tight = FlowRegion(whole.flow, X, whole.radius, 2, max_memory=1)
    np.testing.assert_allclose(tight.volume(), whole.volume(), rtol=1e-6)
    np.testing.assert_allclose(tight.bounding_box(), whole.bounding_box(), rtol=1e-6)


def test_copies_answer_alike(fitted):
    X, _ = banana(20, 8)
    expected = fitted.predict_region(X).volume()
    for other in (copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(other.predict_region(X).volume(), expected)


def test_density_level_sets_of_the_same_flow(fitted):
    level = copy.deepcopy(fitted)
    level.score = "log_density"
    level.calibrate(*banana(1000, 1))
    X, Y = banana(400, 9)
    region = level.predict_region(X)
    assert 0.86 < region.contains(Y).mean() < 0.94
    np.testing.assert_array_equal(region.contains(Y), level.log_prob(X, Y) >= region.log_threshold)
    # the determinant of the true transport is constant: both regions are the same there
    assert region.volume().mean() == pytest.approx(fitted.predict_region(X).volume().mean(), rel=0.15)


def test_one_output_is_an_interval():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (1200, 1))
    y = 3 * X[:, 0] + (0.1 + X[:, 0]) * rng.normal(size=1200)
    method = FlowConformalRegressor(n_layers=2, hidden=(16,), max_epochs=60, lr=1e-2, random_state=0).fit(
        X[:600], y[:600], X[600:], y[600:]
    )
    region = method.predict_region(X[600:])
    ends = region.hull()
    np.testing.assert_allclose(region.volume(), ends[:, 1] - ends[:, 0], rtol=1e-9)
    np.testing.assert_array_equal(region.contains(y[600:]), (ends[:, 0] <= y[600:]) & (y[600:] <= ends[:, 1]))
    assert method.predict(X[:5]).shape == (5,)
    wide = X[600:, 0] > 0.8
    assert region.volume()[wide].mean() > 2 * region.volume()[X[600:, 0] < 0.2].mean()


# traps


def test_far_outputs_are_infinitely_strange_and_nan_is_counted():
    class Overflowing(AffineFlow):
        def inverse(self, y, x):
            z, logdet = super().inverse(y, x)
            z[y[:, 0] > 50] = np.inf
            z[y[:, 0] < -50] = np.nan
            return z, logdet

    X, Y = np.zeros((19, 1)), np.random.default_rng(0).normal(size=(19, 2))
    Y[3, 0], Y[4, 0], Y[7, 0] = 100, 200, -100
    with pytest.warns(AssayWarning, match="NaN for 1 of 19 calibration rows"):
        method = FlowConformalRegressor(Overflowing(np.eye(2)), alpha=0.2).calibrate(X, Y)
    assert method.n_nan_ == 1
    assert np.isinf(method.scores_).sum() == 3
    assert np.isfinite(method.predict_region(X).radius)
    region = method.predict_region(X, alpha=0.1)
    assert region.radius == np.inf
    assert (region.volume() == np.inf).all()
    assert region.contains(Y).all()


def test_too_few_calibration_rows_give_the_whole_space(fitted):
    method = copy.deepcopy(fitted).calibrate(*banana(8, 1))
    with pytest.warns(InfiniteSetWarning, match="8 calibration rows at alpha 0.1: at least 9"):
        region = method.predict_region(banana(3, 2)[0])
    assert (region.volume() == np.inf).all()
    assert (region.log_volume() == np.inf).all()
    assert np.isinf(region.bounding_box()).all()
    assert region.contains(np.full((3, 2), 1e6)).all()
    assert np.isfinite(region.sample(5)).all()
    with pytest.raises(MethodError, match="no boundary"):
        region.boundary()


def test_training_rows_are_refused_as_calibration_rows():
    X, Y = banana(60, 0)
    with pytest.raises(DataError, match="all 60 calibration rows are rows that the flow was trained on"):
        FlowConformalRegressor(**SMALL).fit(X, Y, X, Y)
    method = FlowConformalRegressor(**SMALL).fit(X, Y, *banana(40, 1))
    with pytest.raises(DataError, match="all 30 calibration rows"):
        method.calibrate(X[:30], Y[:30])
    assert len(method.scores_) == 40
    # rows that repeat in the data are no leak
    assert len(FlowConformalRegressor(**SMALL).fit(np.zeros((9, 1)), np.ones((9, 2))).scores_) > 3
    assert len(method.calibrate(np.r_[X[:2], banana(40, 1)[0]], np.r_[Y[:2], banana(40, 1)[1]]).scores_) == 42


def test_counts_are_dequantised_in_training_alone():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (1500, 1))
    Y = np.column_stack([rng.poisson(2 + 3 * X[:, 0]), rng.normal(size=1500)])
    noisy = FlowDensityRegressor(2, max_epochs=40, random_state=0).fit(X[:700], Y[:700])
    np.testing.assert_array_equal(noisy.steps_, [1.0, 0.0])
    bare = FlowDensityRegressor(2, max_epochs=40, dequantize=False, random_state=0).fit(X[:700], Y[:700])
    assert (bare.steps_ == 0).all()
    tenths = FlowDensityRegressor(2, max_epochs=1, random_state=0).fit(X, Y / 10)
    np.testing.assert_allclose(tenths.steps_, [0.1, 0.0])
    method = FlowConformalRegressor(noisy).calibrate(X[700:1100], Y[700:1100])
    again = FlowConformalRegressor(noisy).calibrate(X[700:1100], Y[700:1100])
    np.testing.assert_array_equal(method.scores_, again.scores_)
    assert 0.85 < method.predict_region(X[1100:]).contains(Y[1100:]).mean() < 0.95
    # the noise is a density of one count: no more than the probability of its most likely value
    assert np.exp(noisy.log_prob(X[1100:], Y[1100:])).max() < 0.4
    with pytest.raises(MethodError, match="dequantize must be"):
        FlowDensityRegressor(dequantize=[1.0]).fit(X, Y)


def test_constant_output_gets_a_thin_region():
    X, Y = banana(400, 0)
    Y[:, 1] = 7
    method = FlowConformalRegressor(**{**SMALL, "max_epochs": 60, "lr": 1e-2}).fit(X, Y)
    region = method.predict_region(X)
    assert region.contains(Y).mean() > 0.85
    assert (np.ptp(region.bounding_box()[:, 1], axis=1) < 1).all()
    assert np.isfinite(region.volume()).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"score": "l2"}, "score must be one of latent_l2, latent_linf, log_density, got 'l2'"),
        ({"n_layers": 0}, "n_layers must be at least 1, got 0"),
        ({"lr": -1.0}, "learning_rate must be positive"),
        ({"alpha": 1.5}, "alpha must lie in"),
        ({"flow": BananaFlow()}, "BananaFlow is no scikit-learn style estimator"),
    ],
)
def test_impossible_parameters(change, message):
    method = FlowConformalRegressor(**{**SMALL, **change})
    with pytest.raises(MethodError, match=message):
        method.fit(*banana(40, 0))
    assert not hasattr(method, "scores_")


def test_bad_outputs():
    X, Y = banana(40, 0)
    Y[5, 1] = np.nan
    with pytest.raises(DataError, match="y is NaN in 1 of 40 rows, first at row 5"):
        FlowConformalRegressor(**SMALL).fit(X, Y)
    with pytest.raises(DataError, match="y_calib has 1 outputs, 2 are expected"):
        FlowConformalRegressor(**SMALL).fit(*banana(40, 0), X, Y[:, 0])
    with pytest.raises(MethodError, match="has no trained flow: call fit"):
        FlowConformalRegressor(**SMALL).calibrate(*banana(40, 0))
    with pytest.raises(MethodError, match="object is no conditional flow"):
        FlowConformalRegressor(object()).calibrate(*banana(40, 0))


# other people's flows


def test_a_trained_zuko_flow():
    zuko = pytest.importorskip("zuko", reason="needs the extra flows")
    import torch

    class Zuko:
        """A zuko flow as a ConditionalFlow; its transform goes from y to z."""

        def __init__(self, flow):
            self.flow = flow

        def transform(self, x):
            return self.flow(torch.as_tensor(x, dtype=torch.float32)).transform

        def inverse(self, y, x):
            with torch.no_grad():
                return self.transform(x).call_and_ladj(torch.as_tensor(y, dtype=torch.float32))

        def forward(self, z, x):
            with torch.no_grad():
                return self.transform(x).inv(torch.as_tensor(z, dtype=torch.float32))

    (X, Y), (Xt, Yt) = banana(1500, 0), banana(600, 1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        flow = zuko.flows.MAF(2, 1, transforms=3, hidden_features=(32, 32))
        steps = torch.optim.Adam(flow.parameters(), 1e-2)
        x, y = (torch.as_tensor(a, dtype=torch.float32) for a in (X, Y))
        for _ in range(100):
            steps.zero_grad()
            loss = -flow(x).log_prob(y).mean()
            loss.backward()
            steps.step()
    method = FlowConformalRegressor(Zuko(flow)).calibrate(*banana(1000, 2))
    region = method.predict_region(Xt)
    assert 0.87 < region.contains(Yt).mean() < 0.93
    assert 2.5 < region.volume().mean() < 4
    np.testing.assert_allclose(shoelace(region.boundary(2000)), region.volume(), rtol=0.02)
    with torch.no_grad():
        expected = flow(torch.as_tensor(Xt, dtype=torch.float32)).log_prob(
            torch.as_tensor(Yt, dtype=torch.float32)
        )
    np.testing.assert_allclose(method.log_prob(Xt, Yt), expected.numpy(), rtol=1e-3, atol=1e-3)
    assert method.sample(Xt[:4], 10, 0).shape == (4, 10, 2)
    assert method.predict(Xt[:4]).shape == (4, 2)


@pytest.mark.filterwarnings("error")
def test_values_at_the_end_of_floats_lie_outside_without_a_warning_of_numpy():
    X, Y = banana(80, 0)
    region = FlowConformalRegressor(**SMALL).fit(X, Y).predict_region(X[:4])
    far = np.array([[1e308, -1e308], [1e200, 1.0], [0.0, 1e40], [-1e308, 1e308]])
    assert not region.contains(far).any()


def test_regions_of_no_row_have_an_empty_box():
    X, Y = banana(80, 0)
    method = FlowConformalRegressor(**SMALL).fit(X, Y)
    assert method.predict_region(X[:0]).bounding_box().shape == (0, 2, 2)
