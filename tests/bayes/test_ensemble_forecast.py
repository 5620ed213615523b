"""The forecast of an ensemble's loss: cases by hand, exactness against every subset, intervals, bad input."""

import itertools
import tracemalloc
import warnings

import numpy as np
import pytest
from scipy.stats import binom, ks_2samp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from assay.bayes.ensemble_curve import majority_law
from assay.bayes.ensemble_equivalence import distributional_equivalence
from assay.bayes.ensemble_forecast import EnsembleForecast
from assay.bayes.ensemble_moments import GroupMoments
from assay.core.errors import AssayWarning, DataError, MethodError

PAIR = np.array([[[0.6, 0.3, 0.1]] * 2, [[0.2, 0.7, 0.1]] * 2])

pytestmark = pytest.mark.filterwarnings("ignore:with 2 members:assay.core.errors.AssayWarning")


def made_up(m, n=60, k=3, seed=0, spread=4.0):
    """Members around common probabilities, and labels drawn from them."""
    rng = np.random.default_rng(seed)
    base = rng.dirichlet(np.ones(k), size=n)
    y = np.array([rng.choice(k, p=row) for row in base])
    logits = np.log(base + 0.02) + rng.normal(size=(m, n, k)) / spread
    proba = np.exp(logits)
    return proba / proba.sum(axis=2, keepdims=True), y


def brier(proba, y):
    return float(((proba - np.eye(proba.shape[1])[y]) ** 2).sum(axis=1).mean())


# ---- the law


def test_two_members_by_hand():
    found = EnsembleForecast().fit(PAIR, [0, 0], classes=[0, 1, 2])
    assert found.member_loss_ == pytest.approx(0.70)
    assert found.predict(2)[0] == pytest.approx(0.62)
    assert found.variance_ == pytest.approx(0.16)
    assert found.asymptote_ == pytest.approx(0.54)
    assert found.predict(4)[0] == pytest.approx(0.58)
    assert found.jensen_gap(4) == pytest.approx(0.16 * 0.75)
    assert found.marginal_gain(1) == pytest.approx(0.08)


def test_two_point_law_is_the_same_for_two_members():
    found = EnsembleForecast(method="inverse_m").fit(PAIR, [0, 0], classes=[0, 1, 2])
    assert (found.asymptote_, found.variance_) == pytest.approx((0.54, 0.16))


@pytest.mark.parametrize(
    ("target", "members"), [(0.58, 4), (0.5799, 5), (0.62, 2), (0.70, 1), (0.9, 1), (0.54, None), (0.1, None)]
)
def test_members_needed(target, members):
    assert EnsembleForecast().fit(PAIR, [0, 0], classes=[0, 1, 2]).members_needed(target) == members


@pytest.mark.parametrize("m", [2, 3, 5, 12, 25])
def test_own_size_returns_the_measured_loss(m):
    proba, y = made_up(m)
    for loss, measured in {
        "brier": brier(proba.mean(axis=0), y),
        "brier_target": ((1 - proba.mean(axis=0)[np.arange(len(y)), y]) ** 2).mean(),
    }.items():
        assert EnsembleForecast(loss).fit(proba, y).predict(m)[0] == pytest.approx(measured, abs=1e-14)


@pytest.mark.parametrize("loss", ["brier", "brier_target"])
def test_mean_over_all_pairs_is_the_forecast_of_all(loss):
    proba, y = made_up(6)
    pairs = [
        EnsembleForecast(loss, force=True).fit(proba[list(pair)], y).predict([1, 3, 50, np.inf])[0]
        for pair in itertools.combinations(range(6), 2)
    ]
    assert np.mean(pairs, axis=0) == pytest.approx(
        EnsembleForecast(loss).fit(proba, y).predict([1, 3, 50, np.inf])[0]
    )


def test_exact_for_every_size_of_a_finite_population_of_members():
    # drawing M of m without replacement has the variance V / M - V / m: the curve passes all of them
    proba, y = made_up(7)
    found = EnsembleForecast().fit(proba, y)
    for size in range(1, 8):
        subsets = itertools.combinations(range(7), size)
        measured = np.mean([brier(proba[list(subset)].mean(axis=0), y) for subset in subsets])
        assert found.predict(size)[0] == pytest.approx(measured, abs=1e-14)


def test_inverse_size_regression_is_exact_for_quadratic_losses():
    proba, y = made_up(5)
    sizes = [1, 2, 10, np.inf]
    exact, regressed = (
        EnsembleForecast("brier", method).fit(proba, y).predict(sizes)[0] for method in ("exact", "inverse_m")
    )
    assert regressed == pytest.approx(exact, abs=1e-12)


def test_inverse_size_regression_beyond_the_groups_is_exact_too():
    proba, y = made_up(13)
    exact, regressed = (
        EnsembleForecast("brier", method, n_groups=5, random_state=0).fit(proba, y)
        for method in ("exact", "inverse_m")
    )
    assert regressed.predict(40)[0] == pytest.approx(exact.predict(40)[0], abs=2e-3)
    assert regressed.member_loss_ == pytest.approx(exact.member_loss_, abs=2e-3)


def test_two_points_of_other_losses():
    proba, y = made_up(2)
    at = np.arange(len(y))
    single = -np.log(proba[:, at, y]).mean()
    pair = -np.log(proba.mean(axis=0)[at, y]).mean()
    found = EnsembleForecast("nll", "inverse_m").fit(proba, y)
    assert found.asymptote_ == pytest.approx(2 * pair - single)
    assert found.predict([1, 2])[0] == pytest.approx([single, pair])
    wrong = EnsembleForecast("error", "inverse_m").fit(proba, y)
    assert wrong.predict(2)[0] == pytest.approx((proba.mean(axis=0).argmax(axis=1) != y).mean())


def test_regression_is_a_squared_loss_too():
    rng = np.random.default_rng(0)
    predictions, y = rng.normal(size=(5, 40)), rng.normal(size=40)
    found = EnsembleForecast("squared").fit(predictions, y)
    assert found.predict(5)[0] == pytest.approx(((predictions.mean(axis=0) - y) ** 2).mean())
    assert found.variance_ == pytest.approx(predictions.var(axis=0, ddof=1).mean())
    assert found.predict(1)[0] == pytest.approx(((predictions - y) ** 2).mean())
    two = EnsembleForecast("squared").fit(
        np.stack([predictions, predictions], axis=2), np.stack([y, y], axis=1)
    )
    assert two.predict(3)[0] == pytest.approx(2 * found.predict(3)[0])


def test_variance_has_the_divisor_m_minus_one():
    proba, y = made_up(3)
    assert EnsembleForecast().fit(proba, y).variance_ == pytest.approx(
        proba.var(axis=0, ddof=1).sum(axis=1).mean(), abs=1e-15
    )


def test_unbiased_over_draws_of_two_members():
    rng = np.random.default_rng(0)
    pool, y = made_up(400, n=30)
    truth = EnsembleForecast().fit(pool, y)
    drawn = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssayWarning)
        for _ in range(400):
            pair = pool[rng.choice(400, 2, replace=False)]
            drawn.append(EnsembleForecast(n_bootstrap=2, force=True).fit(pair, y).predict([1, 10, np.inf])[0])
    error = np.mean(drawn, axis=0) - truth.predict([1, 10, np.inf])[0]
    assert (np.abs(error) < 4 * np.std(drawn, axis=0) / 20).all()


# ---- collapse


def collapsed(accuracy_rows):
    """(m, n, 2) sure predictions, right where a row of the table is 1."""
    right = np.asarray(accuracy_rows, dtype=float)
    return np.stack([right, 1 - right], axis=2)


def test_collapse_law_by_hand():
    # 20 rows: 17 both right, 2 one of the two, 1 none: a = .9, r2 = .85
    first = np.array([1] * 17 + [1, 1] + [0])
    second = np.array([1] * 17 + [0, 0] + [0])
    # a = (19 + 17) / 40 = .9 and r2 = 17 / 20 = .85
    found = EnsembleForecast("brier_target", "collapse").fit(collapsed([first, second]), np.zeros(20, int))
    sizes = np.array([1, 2, 5, 100])
    assert found.predict(sizes)[0] == pytest.approx(0.05 + 0.05 / sizes)


def test_collapse_takes_the_most_probable_class():
    proba, y = made_up(4)
    sure = (proba == proba.max(axis=2, keepdims=True)).astype(float)
    for loss in ("brier", "brier_target"):
        soft = EnsembleForecast(loss, "collapse").fit(proba, y).predict([1, 4, 30])[0]
        assert soft == pytest.approx(EnsembleForecast(loss).fit(sure, y).predict([1, 4, 30])[0])


def test_majority_of_the_beta_law():
    # a = .9, second moment .85
    theta = np.array([[1 - 1.8 + 0.85, 0.05]])
    one, two, three = majority_law(theta, np.array([1.0, 2.0, 3.0]))[0]
    assert one == pytest.approx(0.1)
    assert two == pytest.approx(one)  # a tie is right half of the time
    good, bad = 0.9 * 0.05 / 0.04, 0.1 * 0.05 / 0.04
    q = np.random.default_rng(0).beta(good, bad, size=400_000)
    assert three == pytest.approx(binom.cdf(1, 3, q).mean(), abs=1e-3)
    assert majority_law(theta, np.array([np.inf]))[0, 0] == pytest.approx((q < 0.5).mean(), abs=2e-3)


def test_majority_forecast_of_two_classes():
    rng = np.random.default_rng(1)
    q = rng.beta(3, 1, size=4000)
    right = rng.random((200, 4000)) < q
    found = EnsembleForecast("error", "collapse", random_state=0).fit(
        collapsed(right[:4]), np.zeros(4000, int)
    )
    for size in (1, 3, 25):
        measured = np.mean(
            [(right[rng.choice(200, size, False)].mean(axis=0) <= 0.5).mean() for _ in range(30)]
        )
        assert found.predict(size)[0] == pytest.approx(measured, abs=0.015)
    assert found.members_needed(found.predict(7)[0] + 1e-12) == 7
    assert found.members_needed(0.001) is None


# ---- members as they come


def test_order_of_members_does_not_matter():
    proba, y = made_up(9)
    forward = EnsembleForecast(random_state=0).fit(proba, y).predict([1, 20])
    backward = EnsembleForecast(random_state=0).fit(proba[::-1], y).predict([1, 20])
    assert np.asarray(forward) == pytest.approx(np.asarray(backward), abs=1e-12)


def test_order_of_rows_and_classes_does_not_matter():
    proba, y = made_up(5)
    rows, columns = np.random.default_rng(2).permutation(len(y)), np.array([2, 0, 1])
    plain = EnsembleForecast().fit(proba, y)
    assert EnsembleForecast().fit(proba[:, rows], y[rows]).asymptote_ == pytest.approx(plain.asymptote_)
    named = EnsembleForecast().fit(proba[:, :, columns], y, classes=columns)
    assert named.asymptote_ == pytest.approx(plain.asymptote_)


def test_arriving_one_by_one_is_the_same():
    proba, y = made_up(12)
    late = EnsembleForecast(random_state=0)
    for number, member in enumerate(proba):
        late.partial_fit(member, y if number == 0 else None)
        if number == 3:
            assert late.predict(9) == EnsembleForecast(random_state=0).fit(proba[:4], y).predict(9)
    whole = EnsembleForecast(random_state=0).fit((member for member in proba), y)
    assert np.asarray(late.predict([1, 9, 99])) == pytest.approx(np.asarray(whole.predict([1, 9, 99])))
    assert late.n_members_ == 12


def test_members_in_another_class_order_are_aligned():
    proba, y = made_up(3)
    names = np.array(["a", "b", "c"])
    turned = [proba[0], proba[1][:, [2, 0, 1]], proba[2]]
    classes = [names, names[[2, 0, 1]], names]
    found = EnsembleForecast().fit(turned, names[y], classes=classes)
    assert found.predict(3)[0] == pytest.approx(EnsembleForecast().fit(proba, y).predict(3)[0])
    late = EnsembleForecast()
    for member, labels in zip(turned, classes, strict=True):
        late.partial_fit(member, names[y], classes=labels)
    assert late.asymptote_ == pytest.approx(found.asymptote_)
    assert late.classes_.tolist() == ["a", "b", "c"]


def test_members_of_other_classes_are_refused():
    proba, y = made_up(2)
    with pytest.raises(DataError, match="member 1 has the classes"):
        EnsembleForecast().fit(proba, y, classes=[[0, 1, 2], [0, 1, 3]])


def test_input_is_left_alone_and_narrow_types_are_read():
    proba, y = made_up(3)
    before = proba.copy()
    wide = EnsembleForecast().fit(proba, y).asymptote_
    assert (proba == before).all()
    assert EnsembleForecast().fit(proba.astype(np.float32), y).asymptote_ == pytest.approx(wide, abs=1e-6)


def test_memory_stands_still():
    y = np.random.default_rng(0).integers(0, 5, 20_000)

    def peak(m):
        def members():
            rng = np.random.default_rng(1)
            for _ in range(m):
                raw = rng.random((20_000, 5), dtype=np.float32)
                yield raw / raw.sum(axis=1, keepdims=True)

        tracemalloc.start()
        EnsembleForecast(n_groups=4, n_bootstrap=2).fit(members(), y)
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top

    assert peak(40) < 1.05 * peak(8)


# ---- interval


def test_interval_covers_new_members_and_rows():
    rng = np.random.default_rng(0)
    hits = []
    truth = np.mean([EnsembleForecast().fit(*made_up(40, n=400, seed=s)).predict(10)[0] for s in range(40)])
    for seed in range(80):
        proba, y = made_up(4, n=400, seed=100 + seed)
        _, low, high = EnsembleForecast(random_state=int(rng.integers(1e6))).fit(proba, y).predict(10)
        hits.append(low <= truth <= high)
    assert 0.88 <= np.mean(hits) <= 1.0


def test_jackknife_leaves_members_out_one_by_one():
    proba, y = made_up(5)
    found = EnsembleForecast().fit(proba, y)
    expected = []
    for left in range(5):
        rest = EnsembleForecast(force=True).fit(np.delete(proba, left, axis=0), y)
        expected.append([rest.asymptote_, rest.variance_])
    assert found._curve.left_out == pytest.approx(np.array(expected), abs=1e-12)


def test_regression_jackknife_leaves_members_out_one_by_one():
    proba, y = made_up(4)
    found = EnsembleForecast("nll", "inverse_m").fit(proba, y)
    rest = [
        EnsembleForecast("nll", "inverse_m", force=True).fit(np.delete(proba, i, axis=0), y) for i in range(4)
    ]
    expected = [[one.asymptote_, one.variance_] for one in rest]
    assert found._curve.left_out == pytest.approx(np.array(expected), abs=1e-10)


@pytest.mark.filterwarnings("ignore:every member is right:assay.core.errors.AssayWarning")
def test_common_shifts_of_members_widen_the_interval():
    # every member is better or worse on all rows at once: rows alone cannot tell
    rng = np.random.default_rng(0)
    n = 3000
    right = np.clip(0.7 + 0.1 * rng.normal(size=(6, 1)), 0.05, 0.95) * np.ones((6, n))
    proba, y = np.stack([right, 1 - right], axis=2), np.zeros(n, int)
    _, low, high = EnsembleForecast(force=True, random_state=0).fit(proba, y, classes=[0, 1]).predict(1)
    _, low_two, high_two = (
        EnsembleForecast(force=True, random_state=0).fit(proba[:2], y, classes=[0, 1]).predict(1)
    )
    assert high - low > 0.03
    assert high_two - low_two < 1e-3


def test_the_gain_is_surer_than_the_loss():
    found = EnsembleForecast(random_state=0).fit(*made_up(5, n=500))
    mean, low, high = found.gain([1, 10])
    assert (mean[0], low[0], high[0]) == (0, 0, 0)
    assert mean[1] == pytest.approx(found.predict(1)[0] - found.predict(10)[0])
    assert high[1] - low[1] < 0.5 * (found.predict(10)[2] - found.predict(10)[1])


def test_two_members_say_what_their_interval_covers():
    proba, y = made_up(3)
    with pytest.warns(AssayWarning, match="rows alone"):
        two = EnsembleForecast().fit(proba[:2], y)
    assert two.interval_covers_ == "rows"
    assert EnsembleForecast().fit(proba, y).interval_covers_ == "rows and members"


def test_same_seed_same_interval():
    proba, y = made_up(11)
    first, second = (EnsembleForecast("nll", "inverse_m", random_state=3).fit(proba, y) for _ in range(2))
    assert first.predict(9) == second.predict(9)
    assert clone(first).get_params() == first.get_params()


def test_table_ends_at_the_limit():
    table = EnsembleForecast().fit(*made_up(4)).table((1, 5))
    assert table["members"].tolist() == [1, 5, np.inf]
    assert table["loss"].is_monotonic_decreasing
    assert (table["gain"] + table["loss"]).to_numpy() == pytest.approx(table["loss"][0])


# ---- bad input


def test_one_member_is_refused():
    proba, y = made_up(1)
    with pytest.raises(DataError, match=r"1 member: .* at least 2"):
        EnsembleForecast().fit(proba, y)
    late = EnsembleForecast().partial_fit(proba[0], y)
    with pytest.raises(DataError, match="1 member"):
        late.predict(5)
    with pytest.raises(DataError, match="0 members"):
        EnsembleForecast().fit([], y)


def test_members_of_two_recipes_are_refused_unless_forced():
    proba, y = made_up(4, n=2000, spread=8)
    proba[2] = 0.5 * proba[2] + 0.5 * np.eye(3)[(y + 1) % 3]
    with pytest.raises(DataError, match=r"members 2 and . .*standard errors.*force=True"):
        EnsembleForecast().fit(proba, y)
    assert EnsembleForecast(force=True).fit(proba, y).n_members_ == 4
    rng = np.random.default_rng(0)
    y = rng.normal(size=2000)
    worse = np.stack([y + rng.normal(size=2000), y + 2 * rng.normal(size=2000)])
    with pytest.raises(DataError, match="mean squared errors"):
        EnsembleForecast("squared").fit(worse, y)


def test_training_rows_and_equal_members_are_noticed():
    _, y = made_up(2)
    sure = np.repeat(np.eye(3)[y][None], 3, axis=0)
    with pytest.warns(AssayWarning, match="trained on"):
        found = EnsembleForecast().fit(sure, y)
    assert found.variance_ == 0
    proba, y = made_up(1)
    with pytest.warns(AssayWarning, match="predict the same"):
        flat = EnsembleForecast().fit(np.repeat(proba, 15, axis=0), y)
    assert flat.variance_ == pytest.approx(0, abs=1e-16)
    assert flat.predict(1)[0] == pytest.approx(flat.asymptote_)
    assert flat.members_needed(flat.asymptote_ - 0.01) is None


def test_clipped_probabilities_are_counted():
    proba, y = made_up(3)
    proba[1, 4] = np.eye(3)[(y[4] + 1) % 3]
    with pytest.warns(AssayWarning, match="1 of 180 probabilities"):
        found = EnsembleForecast("nll", "inverse_m").fit(proba, y)
    assert found.n_clipped_ == 1
    assert np.isfinite(found.predict([1, 100])[0]).all()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"loss": "nll"}, "inverse_m"),
        ({"loss": "error"}, "inverse_m"),
        ({"loss": "accuracy"}, "loss must be"),
        ({"method": "power"}, "method must be"),
        ({"loss": "nll", "method": "collapse"}, "infinite"),
        ({"loss": "squared", "method": "collapse"}, "no classes"),
        ({"n_bootstrap": 1}, "n_bootstrap"),
        ({"n_groups": 1}, "n_groups"),
        ({"confidence": 95}, "confidence"),
    ],
)
def test_impossible_settings(options, said):
    with pytest.raises(MethodError, match=said):
        EnsembleForecast(**options).fit(*made_up(3))


def test_bad_members_and_sizes():
    proba, y = made_up(3)
    with pytest.raises(DataError, match="2 classes"):
        EnsembleForecast("error", "collapse").fit(proba, y)
    with pytest.raises(DataError, match="member 0 has 60 rows, y has 59"):
        EnsembleForecast().fit(proba, y[:-1])
    with pytest.raises(DataError, match="member 2 has 2 columns"):
        EnsembleForecast().fit([proba[0], proba[1], proba[2][:, :2]], y)
    broken = proba.copy()
    broken[1, 7, 0] = np.nan
    with pytest.raises(DataError, match="member 1 is NaN in column 0, first at row 7"):
        EnsembleForecast().fit(broken, y)
    with pytest.raises(DataError, match="shape"):
        EnsembleForecast().fit(proba[0], y)
    with pytest.raises(DataError, match="at least 2"):
        EnsembleForecast().fit(proba[:, :1], y[:1])
    fitted = EnsembleForecast().fit(proba, y)
    for size in (0, 2.5, -1, np.nan):
        with pytest.raises(MethodError, match="number of members"):
            fitted.predict(size)
    with pytest.raises(NotFittedError):
        EnsembleForecast().predict(3)


def test_a_bad_member_leaves_the_stream_as_it_was():
    proba, y = made_up(4)
    late = EnsembleForecast(random_state=0)
    for member in proba[:3]:
        late.partial_fit(member, y)
    before = late.predict(7)
    bad = proba[3].copy()
    bad[-1, -1] = 2
    with pytest.raises(DataError, match="member 3"):
        late.partial_fit(bad)
    with pytest.raises(DataError, match="y differs"):
        late.partial_fit(proba[3], y[::-1])
    assert late.predict(7) == before
    with pytest.raises(DataError):
        late.fit(proba[:1], y)
    assert late.predict(7) == before


# ---- moments and equivalence


def test_group_moments_are_those_of_all_members():
    values = np.random.default_rng(0).normal(size=(23, 11, 4))
    moments = GroupMoments(11, 4, 5)
    for member in values:
        group = moments.open()
        moments.add(group, slice(0, 6), member[:6])
        moments.add(group, slice(6, 11), member[6:])
    assert moments.counts.tolist() == [5, 5, 5, 4, 4]
    assert moments.mean() == pytest.approx(values.mean(axis=0))
    assert moments.variance() == pytest.approx(values.var(axis=0, ddof=1).sum(axis=1))
    for group, (members, asymptote, variance) in enumerate(moments.leave_group_out()):
        rest = values[np.arange(23) % 5 != group]
        spread = rest.var(axis=0, ddof=1).sum(axis=1)
        assert members == len(rest)
        assert variance == pytest.approx(spread.mean())
        assert asymptote == pytest.approx(((rest.mean(axis=0) ** 2).sum(axis=1) - spread / members).mean())


def test_equivalence_agrees_with_scipy():
    proba, y = made_up(4)
    table = distributional_equivalence(proba, y)
    true = proba[:, np.arange(len(y)), y]
    assert len(table) == 6
    for row in table.itertuples():
        assert row.ks == pytest.approx(ks_2samp(true[row.first], true[row.second]).statistic)
        assert row.disagreement == pytest.approx(np.abs(true[row.first] - true[row.second]).mean())
        assert row.flagged == (row.ks > 0.1)
    assert table["ks"].is_monotonic_decreasing
    assert table.attrs["largest_ks"] == table["ks"][0]
    accuracies = (proba.argmax(axis=2) == y).mean(axis=1)
    assert table.attrs["accuracy_spread"] == pytest.approx(np.ptp(accuracies))


def test_equal_members_differ_in_nothing_and_one_is_refused():
    proba, y = made_up(1)
    table = distributional_equivalence([proba[0], proba[0]], y)
    assert table[["ks", "disagreement"]].to_numpy().tolist() == [[0, 0]]
    with pytest.raises(DataError, match="at least 2"):
        distributional_equivalence(proba, y)
