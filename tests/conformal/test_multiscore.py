"""Multi-score sets: exact small cases, invariances, validity without signal, and bad input."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.utils.estimator_checks import parametrize_with_checks

from assay.conformal.heads import SubspaceHeads
from assay.conformal.label_scores import APSScore, LACScore
from assay.conformal.multiscore import MultiScoreConformal
from assay.conformal.score_cells import Cells, NeighbourRatio, RankTransform, Voronoi
from assay.core.errors import AssayWarning, InfiniteSetWarning

pytestmark = pytest.mark.filterwarnings("ignore:.*rows form the cells:assay.core.errors.AssayWarning")


@parametrize_with_checks(
    [MultiScoreConformal(SubspaceHeads(LogisticRegression(), n_heads=2, random_state=0))]
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def column(*values):
    return np.array(values, dtype=float)[:, None]


def sample(n=600, k=4, d=3, seed=0):
    """Scores (n, K, d): true labels near zero, false ones spread out."""
    rng = np.random.default_rng(seed)
    y = rng.integers(k, size=n)
    scores = rng.uniform(0.1, 1, size=(n, k, d))
    scores[np.arange(n), y] *= rng.uniform(0, 0.8, size=(n, 1))
    return scores, y


def probabilities(n=600, k=5, d=3, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(k, size=n)
    logits = rng.normal(size=(n, k, d)) + 1.5 * np.eye(k)[y][:, :, None]
    p = np.exp(logits)
    return p / p.sum(axis=1, keepdims=True), y


def learnt_sets(scores, y, asked, **options):
    """Sets where the first half forms cells."""
    rows = np.arange(len(y)) < len(y) // 2
    method = MultiScoreConformal(**options).calibrate_scores(scores, y, cell_rows=rows)
    return method.predict_set_scores(asked)


class TestCells:
    def test_purity_and_order_by_hand(self):
        true = column(0.1, 0.4, 0.8)
        false = column(0.45, 0.59, 0.75, 0.9, 0.95)
        cells = Cells.fit(true, [np.concatenate([true, false])])
        np.testing.assert_array_equal(cells.centers, true)
        np.testing.assert_array_equal(cells.purity, [1, 3, 4])
        np.testing.assert_array_equal(cells.order, [0, 1, 2])
        np.testing.assert_array_equal(cells.score(column(0, 0.3, 0.61, 5)), [0, 1, 2, 2])

    def test_a_tie_goes_to_the_first_centre(self):
        # distances that floats hold exactly, in one dimension and, three centres at once, in two
        cells = Cells.fit(column(0.25, 0.75), [column(0.25, 0.75, 0.5)])
        np.testing.assert_array_equal(cells.purity, [2, 1])
        corners = np.array([[1.0, 0], [0, 1], [0.0, -1], [8, 8]])
        cells = Cells.fit(corners + 2, [corners + 2])
        first = cells.score(cells.centers[:1])
        np.testing.assert_array_equal(cells.score(np.array([[2.0, 2.0]])), first)

    def test_equal_centres_merge(self):
        true = column(0, 0, 0, 0.5)
        cells = Cells.fit(true, [np.concatenate([true, column(0.1, 0.1, 0.6)])])
        np.testing.assert_array_equal(cells.centers, column(0, 0.5))
        np.testing.assert_allclose(cells.purity, [(2 + 3) / 3, 2])

    def test_equal_purity_is_ordered_by_norm(self):
        true = np.array([[0.9, 0.1], [0.2, 0.2], [0.5, 0.6], [0.0, 0.3]])
        cells = Cells.fit(true, [true])
        assert (cells.purity == 1).all()
        norms = np.linalg.norm(cells.centers[cells.order], axis=1)
        assert (np.diff(norms) > 0).all()
        np.testing.assert_array_equal(cells.score(true), [3, 0, 2, 1])
        # scores that may be negative count from the smallest
        below = Cells.fit(true - 2, [true - 2])
        np.testing.assert_array_equal(below.score(true - 2)[[1, 3]], [1, 0])

    def test_far_vectors_are_outside_with_a_cap(self):
        true = column(0.1, 0.2, 0.4)
        free, bound = Cells.fit(true, [true]), Cells.fit(true, [true], 1.0)
        np.testing.assert_array_equal(free.score(column(0.41, 100)), [2, 2])
        assert bound.reach == pytest.approx(0.2)
        np.testing.assert_array_equal(bound.score(column(0.41, 100)), [2, 3])
        one = Cells.fit(column(0.5, 0.5), [column(0.5, 0.5, 0.7)], 1.0)
        np.testing.assert_array_equal(one.score(column(0.5, 0.7)), [0, 1])

    def test_cells_agree_with_all_distances(self):
        rng = np.random.default_rng(1)
        true, false = rng.random((80, 3)), rng.random((400, 3)) * 1.5
        cells = Cells.fit(true, [true, false[:100], false[100:]])
        distances = np.linalg.norm(false[:, None] - cells.centers, axis=2)
        counts = np.bincount(distances.argmin(axis=1), minlength=80)
        np.testing.assert_array_equal(cells.purity, counts + 1)
        np.testing.assert_array_equal(cells.score(false), np.argsort(cells.order)[distances.argmin(axis=1)])

    def test_ratio_of_neighbours_agrees_with_all_distances(self):
        rng = np.random.default_rng(2)
        vectors, labels = rng.random((30, 4, 2)), rng.integers(4, size=30)
        wrong = np.arange(4) != labels[:, None]
        true, false = vectors[~wrong], vectors[wrong]
        ratio = NeighbourRatio(3).learn(true, lambda: [(vectors, labels)])
        asked = rng.random((50, 2))
        t, f = (np.sort(np.linalg.norm(asked[:, None] - of, axis=2), axis=1)[:, 2] for of in (true, false))
        np.testing.assert_allclose(ratio.score(asked), t / (t + f))

    def test_no_distance_to_either_kind_is_a_draw(self):
        same = np.zeros((5, 2, 1))
        ratio = NeighbourRatio(2).learn(same[:, 0], lambda: [(same, np.zeros(5, int))])
        np.testing.assert_array_equal(ratio.score(np.zeros((1, 1))), [0.5])

    def test_ranks_of_values(self):
        ranks = RankTransform.fit(column(3, 1, 2, 2))
        np.testing.assert_array_equal(ranks(column(0, 1, 2, 2.5, np.inf))[:, 0], [0, 0.25, 0.75, 0.75, 1])


class TestSets:
    def test_nine_rows_take_the_largest_rank_and_eight_all_labels(self):
        scores, y = sample(209)
        rows = np.arange(len(y)) < 200
        method = MultiScoreConformal(alpha=0.1).calibrate_scores(scores, y, cell_rows=rows)
        ranks = method.calibrator_.scores
        assert len(ranks) == method.n_recalibration_rows_ == 9
        assert method.n_cell_rows_ == 200
        assert method.n_selected_ == ranks.max() + 1
        expected = method.score_.all(np.moveaxis(scores, 2, 0)) <= ranks.max()
        np.testing.assert_array_equal(method.predict_set_scores(scores), expected)
        method.calibrate_scores(scores[:-1], y[:-1], cell_rows=rows[:-1])
        with pytest.warns(InfiniteSetWarning, match=r"8 of 208 .* alpha 0.1 at least 9"):
            assert method.predict_set_scores(scores).all()
        assert method.n_selected_ == len(method.order_)

    def test_cell_rows_do_not_calibrate(self):
        scores, y = sample()
        rows = np.arange(len(y)) < 300
        method = MultiScoreConformal(rank_transform=False).calibrate_scores(scores, y, cell_rows=rows)
        true = scores[np.arange(len(y)), y]
        np.testing.assert_array_equal(np.sort(method.centers_, axis=0), np.sort(true[:300], axis=0))
        cells = Cells.fit(true[:300], [scores[:300].reshape(-1, 3)])
        np.testing.assert_array_equal(method.calibrator_.scores, cells.score(true[300:]))
        np.testing.assert_array_equal(method.purity_, cells.purity)
        # whatever the other rows are, cells stay
        other = scores.copy()
        other[300:] = np.random.default_rng(9).random(other[300:].shape)
        again = MultiScoreConformal().calibrate_scores(other, y, cell_rows=rows)
        first = MultiScoreConformal().calibrate_scores(scores, y, cell_rows=rows)
        np.testing.assert_array_equal(again.centers_, first.centers_)
        np.testing.assert_array_equal(again.score_.transform.values, first.score_.transform.values)

    @pytest.mark.parametrize("partition", ["voronoi", "knn_ratio"])
    def test_heads_permuted_scaled_mapped_and_doubled(self, partition):
        scores, y = sample()
        asked = sample(200, seed=5)[0]
        plain = {"partition": partition, "rank_transform": False}
        expected = learnt_sets(scores, y, asked, **plain)
        assert 0 < expected.mean() < 1
        order = [2, 0, 1]
        np.testing.assert_array_equal(
            learnt_sets(scores[..., order], y, asked[..., order], **plain), expected
        )
        np.testing.assert_array_equal(learnt_sets(4 * scores, y, 4 * asked, **plain), expected)
        np.testing.assert_array_equal(learnt_sets(3 * scores, y, 3 * asked, **plain), expected)
        ranked = {"partition": partition, "rank_transform": True}
        expected = learnt_sets(scores, y, asked, **ranked)
        maps = [np.exp, np.cbrt, lambda s: 1000 * s - 7]

        def mapped(s):
            return np.stack([f(s[..., j]) for j, f in enumerate(maps)], axis=-1)

        np.testing.assert_array_equal(learnt_sets(mapped(scores), y, mapped(asked), **ranked), expected)
        one = learnt_sets(scores[..., 0], y, asked[..., 0], **plain)
        two = learnt_sets(scores[..., [0, 0]], y, asked[..., [0, 0]], **plain)
        np.testing.assert_array_equal(two, one)

    def test_the_rows_for_cells_do_not_depend_on_the_order_of_heads(self):
        p, y = probabilities()
        asked, _ = probabilities(100, seed=3)
        sets = [
            MultiScoreConformal(scores="lac", random_state=4)
            .calibrate_proba(p[..., order], y)
            .predict_set_proba(asked[..., order])
            for order in ([0, 1, 2], [2, 0, 1], [0, 1, 2, 1])
        ]
        np.testing.assert_array_equal(sets[0], sets[1])
        first, doubled = (
            MultiScoreConformal(scores="lac", random_state=4).calibrate_proba(p[..., order], y)
            for order in ([0], [0, 0])
        )
        np.testing.assert_array_equal(
            first.predict_set_proba(asked[..., [0]]), doubled.predict_set_proba(asked[..., [0, 0]])
        )

    @pytest.mark.parametrize(
        "given", [lambda p: p, lambda p: [p[..., j] for j in range(3)], lambda p: p.tolist()]
    )
    def test_heads_in_every_form(self, given):
        p, y = probabilities()
        expected = MultiScoreConformal(random_state=0).calibrate_proba(p, y).predict_set_proba(p)
        got = MultiScoreConformal(random_state=0).calibrate_proba(given(p), y).predict_set_proba(given(p))
        np.testing.assert_array_equal(got, expected)

    def test_several_scores_of_several_heads(self):
        p, y = probabilities()
        method = MultiScoreConformal(scores=["lac", APSScore()], random_state=0).calibrate_proba(p, y)
        assert method.centers_.shape[1] == 6
        assert method.score_.transform is not None
        assert MultiScoreConformal(random_state=0).calibrate_proba(p, y).score_.transform is None
        # they are those of the shared scores, head after head
        block = np.moveaxis(p, 2, 0)
        raw = MultiScoreConformal(scores=["lac", "aps"], rank_transform=False).calibrate_proba(p, y).score_
        vectors = raw.vectors(block, None)
        np.testing.assert_array_equal(vectors[..., 2], LACScore().all(p[..., 1]))
        np.testing.assert_array_equal(vectors[..., 5], APSScore().all(np.ascontiguousarray(p[..., 2])))

    def test_randomised_scores_share_u(self):
        p, y = probabilities()
        p[..., 1] = p[..., 2] = p[..., 0]
        method = MultiScoreConformal(scores="aps", randomised=True, rank_transform=False, random_state=0)
        centers = method.calibrate_proba(p, y).centers_
        np.testing.assert_array_equal(centers[:, 0], centers[:, 1])
        np.testing.assert_array_equal(centers[:, 0], centers[:, 2])
        # u is the row's own: one row at a time gives the same
        alone = np.concatenate([method.predict_set_proba(p[i : i + 1]) for i in range(40)])
        np.testing.assert_array_equal(alone, method.predict_set_proba(p[:40]))

    @pytest.mark.parametrize("partition", ["voronoi", "knn_ratio", Voronoi(distance_cap=1.0)])
    def test_coverage_without_signal(self, partition):
        covered, sizes = [], []
        for seed in range(40):
            p, y = probabilities(1600, seed=seed)
            y = np.random.default_rng(seed).permutation(y)
            method = MultiScoreConformal(scores="lac", partition=partition, random_state=seed)
            sets = method.calibrate_proba(p[:600], y[:600]).predict_set_proba(p[600:])
            covered.append(sets[np.arange(1000), y[600:]].mean())
            sizes.append(sets.sum(axis=1).mean())
        assert abs(np.mean(covered) - 0.9) < 0.012
        assert abs(np.mean(sizes) / 5 - 0.9) < 0.02

    def test_heads_that_see_different_things_give_smaller_sets_than_one(self):
        sizes = {1: [], 3: []}
        for seed in range(3):
            p, y = probabilities(3000, k=8, seed=seed)
            for d, found in sizes.items():
                method = MultiScoreConformal(scores="lac", random_state=seed)
                method.calibrate_proba(p[:1000, :, :d], y[:1000])
                found.append(method.predict_set_proba(p[1000:, :, :d]).sum(axis=1).mean())
        assert np.mean(sizes[3]) < 0.75 * np.mean(sizes[1])


class TestModels:
    def test_any_classifiers_are_heads(self):
        X, y = load_digits(n_class=4, return_X_y=True)
        names = np.array(["a", "b", "c", "d"])[y]
        models = [LogisticRegression(max_iter=500), GaussianNB(var_smoothing=1e-2)]
        method = MultiScoreConformal(models, random_state=0).fit(X[:400], names[:400])
        assert method.n_heads_ == 2
        assert method.predict_proba_heads(X[:3]).shape == (3, 4, 2)
        assert not hasattr(models[0], "coef_")
        np.testing.assert_allclose(
            method.predict_proba(X[:5]), method.predict_proba_heads(X[:5]).mean(axis=2)
        )
        assert (method.predict(X[400:]) == names[400:]).mean() > 0.9
        # trained elsewhere, with classes in their own order
        fitted = [model.fit(X[:200], names[:200]) for model in models]
        fitted[1].fit(X[:200][y[:200] != 2], names[:200][y[:200] != 2])
        other = MultiScoreConformal(fitted, scores="lac", random_state=0).calibrate(X[200:], names[200:])
        assert list(other.classes_) == ["a", "b", "c", "d"]
        assert (other.predict_proba_heads(X[:9])[:, 2, 1] == 0).all()
        assert other.predict_set(X[:9]).shape == (9, 4)
        assert other.n_features_in_ == 64

    def test_heads_on_parts_of_the_columns(self):
        X, y = load_digits(n_class=3, return_X_y=True)
        heads = SubspaceHeads(n_heads=4, random_state=1).fit(X, y)
        assert all(len(at) == 32 and len(np.unique(at)) == 32 for at in heads.columns_)
        assert len({tuple(at) for at in heads.columns_}) == 4
        p = heads.predict_proba_heads(X[:6])
        np.testing.assert_allclose(p[..., 1], heads.estimators_[1].predict_proba(X[:6][:, heads.columns_[1]]))
        np.testing.assert_allclose(heads.predict_proba(X[:6]), p.mean(axis=2))
        for options, message in (({"n_heads": 0}, "n_heads"), ({"fraction": 0}, "fraction")):
            with pytest.raises(ValueError, match=message):
                SubspaceHeads(**options).fit(X, y)
        with pytest.raises(ValueError, match="63 features"):
            heads.predict_proba(X[:, 1:])


class TestBadInput:
    def test_few_rows_for_cells_warn(self):
        p, y = probabilities(300)
        with pytest.warns(AssayWarning, match=r"150 rows form the cells.*200"):
            MultiScoreConformal().calibrate_proba(p, y)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            MultiScoreConformal(partition="knn_ratio").calibrate_proba(p, y)
            MultiScoreConformal(cell_fraction=0.7).calibrate_proba(p, y)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"cell_fraction": 0.0}, "cell_fraction"),
            ({"cell_fraction": 1.0}, "cell_fraction"),
            ({"partition": "kmeans"}, "partition"),
            ({"partition": "knn_ratio", "k": 0}, "k must"),
            ({"partition": Voronoi(distance_cap=0)}, "distance_cap"),
            ({"rank_transform": "yes"}, "rank_transform"),
            ({"scores": []}, "empty list"),
            ({"scores": "best"}, "no score"),
        ],
    )
    def test_refused_arguments(self, options, message):
        p, y = probabilities(50)
        with pytest.raises(ValueError, match=message):
            MultiScoreConformal(**options).calibrate_proba(p, y)

    def test_refused_data(self):
        p, y = probabilities(50)
        bad = p.copy()
        bad[7, 0, 1] = np.nan
        method = MultiScoreConformal(random_state=0)
        for given, labels, message in (
            (bad, y, "head 1.*row 7"),
            (p * 0.9, y, "sums to 0.9"),
            (p[..., :0], y, "no head"),
            ([], y, "no head"),
            ([p[..., 0], p[:, 1:, 1]], y, "different shapes"),
            (p[:, 0, 0], y, "shape"),
            (p, np.where(y < 2, 9, y), "cannot be told"),
            (p, y[:-1], "49"),
        ):
            with pytest.raises(ValueError, match=message):
                method.calibrate_proba(given, labels)
        assert not hasattr(method, "classes_")
        method.calibrate_proba(p, y)
        with pytest.raises(ValueError, match=r"2 head\(s\), 3 were calibrated"):
            method.predict_set_proba(p[..., :2])
        with pytest.raises(ValueError, match="no groups"):
            method.calibrate_proba(p, y, groups=y)
        with pytest.raises(ValueError, match="list of heads is empty"):
            MultiScoreConformal([]).fit(p[..., 0], y)

    def test_refused_scores(self):
        scores, y = sample(50)
        bad = scores.copy()
        bad[3, 1, 2] = np.nan
        method = MultiScoreConformal(random_state=0)
        with pytest.raises(ValueError, match="NaN in 1 of 50 rows, first at row 3"):
            method.calibrate_scores(bad, y)
        bad[3, 1, 2] = np.inf
        method.calibrate_scores(bad, y)
        with pytest.raises(ValueError, match=r"infinite in 1 of 50.*rank_transform"):
            MultiScoreConformal(rank_transform=False).calibrate_scores(bad, y)
        for rows in (np.ones(49, bool), np.arange(50)):
            with pytest.raises(ValueError, match="cell_rows"):
                method.calibrate_scores(scores, y, cell_rows=rows)
        with pytest.raises(ValueError, match="marks none"):
            method.calibrate_scores(scores, y, cell_rows=np.zeros(50, bool))
        with pytest.raises(ValueError, match="predict_set_scores"):
            method.predict_set_proba(scores)
        p, y = probabilities(50)
        with pytest.raises(ValueError, match="predict_set_proba"):
            method.calibrate_proba(p, y).predict_set_scores(p)

    def test_no_cells_where_there_are_none(self):
        p, y = probabilities(50)
        method = MultiScoreConformal(partition="knn_ratio").calibrate_proba(p, y)
        with pytest.raises(AttributeError, match="no cells"):
            _ = method.centers_
        with pytest.raises(ValueError, match="not fitted"):
            _ = MultiScoreConformal().n_selected_
