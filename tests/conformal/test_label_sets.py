"""The laws that every label-set method keeps; the methods come from the cards."""

import copy
import pickle
import tracemalloc
import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from assay.conformal.set_base import SetClassifier
from assay.core.cards import all_cards
from assay.core.errors import AssayWarning, DataError, InfiniteSetWarning, MethodError

CARDS = [
    card
    for card in all_cards().values()
    if card.task == "label-set" and card.cls.startswith("assay.conformal")
]
METHODS = [pytest.param(card.load(), id=card.id) for card in CARDS]
every_method = pytest.mark.parametrize("method", METHODS)
#: those whose set is made by a rank among scores
RANKED = [card.load() for card in CARDS if "exact-rank" not in card.exceptions]
every_ranked = pytest.mark.parametrize(
    "method", [pytest.param(card.load(), id=card.id) for card in CARDS if "exact-rank" not in card.exceptions]
)
_SURE = "labels/sure-rows-get-their-label"
#: one threshold for all labels, unless groups are given
MARGINAL = [
    pytest.param(card.load(), id=card.id)
    for card in CARDS
    if card.load()._make_calibrator is SetClassifier._make_calibrator
    and not any(name.startswith("unseen-groups") for name in card.exceptions)
]


def accepts(method, name):
    return name in method().get_params()


def variants(method, **arguments):
    """The method as it comes, and randomised if it can be."""
    yield method(random_state=7, **arguments)
    if accepts(method, "randomised"):
        yield method(random_state=7, randomised=True, **arguments)


def sample(n=400, k=5, seed=0, dtype=np.float64):
    """Probabilities of n rows and labels drawn from them."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(k, 0.7), size=n)
    y = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=k - 1)
    return p.astype(dtype), y


@pytest.fixture(autouse=True)
def _quiet_infinite_sets():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfiniteSetWarning)
        yield


@every_method
@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3])
def test_coverage_over_many_draws(method, alpha):
    for m in variants(method):
        hits = []
        for seed in range(25):
            p, y = sample(1400, 4, seed)
            sets = m.calibrate_proba(p[:400], y[:400]).predict_set_proba(p[400:], alpha)
            hits.append(sets[np.arange(1000), y[400:]].mean())
        assert np.mean(hits) > 1 - alpha - 0.012
        if method in RANKED:  # others may have many equal scores
            assert np.mean(hits) < 1 - alpha + 0.03


@every_method
def test_batches_of_any_size_and_memory_do_not_matter(method):
    p, y = sample()
    for m in variants(method):
        m.calibrate_proba(p, y)
        whole = m.predict_set_proba(p[:60])
        single = np.concatenate([m.predict_set_proba(p[i : i + 1]) for i in range(60)])
        np.testing.assert_array_equal(single, whole)
        assert single.shape == (60, 5)
        assert m.predict_set_proba(p[:0]).shape == (0, 5)
        assert m.predict_set_proba(p[:0], alpha=[0.1, 0.2]).shape == (2, 0, 5)
        tiny = clone(m).set_params(max_memory=1000).calibrate_proba(p, y)
        np.testing.assert_array_equal(tiny.predict_set_proba(p[:60]), whole)


@every_method
def test_order_of_rows_and_classes_does_not_matter(method):
    p, y = sample(600, 6)
    rng = np.random.default_rng(1)
    rows, columns = rng.permutation(500), rng.permutation(6)
    back = np.argsort(columns)
    for m in variants(method):
        expected = m.calibrate_proba(p[:500], y[:500]).predict_set_proba(p[500:])
        again = clone(m).calibrate_proba(p[:500][rows], y[:500][rows])
        np.testing.assert_array_equal(again.predict_set_proba(p[500:]), expected)
        np.testing.assert_array_equal(again.predict_set_proba(p[500:][::-1]), expected[::-1])
        renamed = clone(m).calibrate_proba(p[:500][:, columns], back[y[:500]], classes=np.arange(6))
        np.testing.assert_array_equal(renamed.predict_set_proba(p[500:][:, columns]), expected[:, columns])


@every_ranked
def test_sets_are_the_labels_with_small_scores(method):
    for dtype in (np.float32, np.float64):
        p, y = sample(300, 7, dtype=dtype)
        p = np.round(p, 1)
        p[:, 0] = np.maximum(p[:, 0] + 1 - p.sum(axis=1, dtype=dtype), 0)
        p = (p / p.sum(axis=1, keepdims=True)).astype(dtype)
        m = method(random_state=0).calibrate_proba(p, y)
        q = m.calibrator_.thresholds([Fraction(1, 10)])[0]
        np.testing.assert_array_equal(m.predict_set_proba(p), m.score_.all(p) <= q)


@every_method
def test_levels_stack_and_nest(method):
    p, y = sample()
    for m in variants(method):
        m.calibrate_proba(p, y)
        sets = m.predict_set_proba(p[:50], alpha=[0.3, "0.1", Fraction(1, 20)])
        assert sets.shape == (3, 50, 5)
        assert sets.dtype == bool
        assert (sets[0] <= sets[1]).all()
        assert (sets[1] <= sets[2]).all()
        np.testing.assert_array_equal(sets[1], m.predict_set_proba(p[:50]))
        for level in (0.1, np.float32(0.1), np.array(0.1), "0.1"):
            np.testing.assert_array_equal(m.predict_set_proba(p[:50], level), sets[1])
        for wrong in (1, -0.1, 1.5, float("nan"), [], True):
            with pytest.raises(ValueError, match="alpha"):
                m.predict_set_proba(p, wrong)
        with pytest.warns(InfiniteSetWarning):
            assert m.predict_set_proba(p, 0).all()


@every_ranked
def test_nineteen_scores_at_96_percent_are_all_labels(method):
    p, y = sample(19, 3)
    m = method(alpha=0.04, random_state=0).calibrate_proba(p, y)
    with pytest.warns(AssayWarning, match=r"24") as caught:
        sets = m.predict_set_proba(p)
    assert sets.all()
    assert caught[0].filename == __file__


@every_method
def test_nine_rows_at_one_tenth_are_a_valid_request(method):
    p = np.tile([0.6, 0.3, 0.1], (9, 1))
    with warnings.catch_warnings():
        if method._make_calibrator is SetClassifier._make_calibrator:
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", "no groups were given", AssayWarning)
        sets = method(random_state=0).calibrate_proba(p, np.zeros(9, int)).predict_set_proba(p[:2])
    assert sets[:, 0].all()


@pytest.mark.parametrize(
    "method", [pytest.param(card.load(), id=card.id) for card in CARDS if _SURE not in card.exceptions]
)
def test_one_hot_rows_give_their_one_label(method):
    y = np.arange(120) % 3
    p = np.eye(3)[y]
    m = method(alpha=0.05, random_state=0).calibrate_proba(p, y)
    assert m.predict_set_proba([[0, 1, 0]]).tolist() == [[False, True, False]]


@every_method
def test_types_of_probabilities(method):
    p, y = sample(200, 4, dtype=np.float32)
    expected = method(random_state=0).calibrate_proba(p, y).predict_set_proba(p)
    torch = pytest.importorskip("torch")
    for other in (pd.DataFrame(p), torch.tensor(p, requires_grad=True), np.asfortranarray(p)):
        np.testing.assert_array_equal(
            method(random_state=0).calibrate_proba(other, y).predict_set_proba(other), expected
        )
    half = p.astype(np.float16)
    np.testing.assert_array_equal(
        method(random_state=0).calibrate_proba(half, y[:, None]).predict_set_proba(half),
        method(random_state=0)
        .calibrate_proba(half.astype(np.float32), y)
        .predict_set_proba(half.astype(np.float32)),
    )


@every_method
@pytest.mark.parametrize(
    "names",
    [
        np.array([1, 2, 3]),
        np.array(["hen", "ox", "pig"]),
        np.array(["hen", "ox", "pig"], object),
        [-1.0, 0.0, 7.0],
    ],
)
def test_labels_of_any_kind(method, names):
    names = np.asarray(names)
    X, y = make_classification(300, n_classes=3, n_informative=4, random_state=0)
    expected = method(GaussianNB(), random_state=0).fit(X, y)
    m = method(GaussianNB(), random_state=0).fit(X, names[y])
    assert m.classes_.tolist() == names.tolist()
    np.testing.assert_array_equal(m.predict_set(X), expected.predict_set(X))
    np.testing.assert_array_equal(m.predict(X), names[expected.predict(X)])
    bare = method(random_state=0).calibrate_proba(m.predict_proba(X), names[y])
    assert bare.classes_.tolist() == names.tolist()


@every_method
def test_binary_and_boolean_targets(method):
    X, y = make_classification(200, random_state=0)
    m = method(GaussianNB(), random_state=0).fit(X, y.astype(bool))
    sets = m.predict_set(X)
    assert sets.shape == (200, 2)
    assert sets[np.arange(200), y].mean() > 0.85
    assert m.predict(X).dtype == bool


@every_method
def test_class_absent_from_calibration_and_class_unseen_in_training(method):
    X, y = make_classification(400, n_classes=4, n_informative=5, random_state=0)
    names = np.array(["a", "b", "c", "d"])[y]
    model = GaussianNB().fit(X[:200], names[:200])
    few = names[200:] != "c"
    m = method(model, random_state=0).calibrate(X[200:][few], names[200:][few])
    assert m.classes_.tolist() == ["a", "b", "c", "d"]
    assert m.predict_set(X).shape == (400, 4)

    m = method(GaussianNB(), random_state=0).fit(
        X[:200][names[:200] != "d"], names[:200][names[:200] != "d"], X[200:], names[200:]
    )
    assert m.classes_.tolist() == ["a", "b", "c", "d"]
    assert (m.predict_proba(X)[:, 3] == 0).all()
    # the rows of d can only be covered by sets that are everything
    assert m.predict_set(X, 0.5).shape == (400, 4)

    model = GaussianNB().fit(X[:200][names[:200] != "d"], names[:200][names[:200] != "d"])
    with pytest.raises(DataError, match=r"'d' at row .* none of the 3 classes .*'a', 'b', 'c'"):
        method(model).calibrate(X[200:], names[200:])
    assert method(model).calibrate(X[200:], names[200:], classes=["d", "a", "b", "c"]).classes_[0] == "d"


@every_method
def test_single_rows_of_a_class_do_not_break_the_split(method):
    X, y = make_classification(60, n_classes=2, random_state=0)
    y = y.copy()
    y[:3] = [5, 6, 7]
    for seed in range(5):
        assert method(GaussianNB(), random_state=seed).fit(X, y).predict_set(X).shape == (60, 5)


@every_method
def test_bad_probabilities_and_labels_are_refused(method):
    p, y = sample(50, 3)
    bad = p.copy()
    bad[[11, 30], 1] = np.nan
    m = method(random_state=0)
    with pytest.raises(ValueError, match="NaN in column 1, first at row 11; 2 of 50"):
        m.calibrate_proba(bad, y)
    with pytest.raises(NotFittedError):
        m.predict_set_proba(p)
    m.calibrate_proba(p, y)
    with pytest.raises(ValueError, match="first at row 11"):
        m.predict_set_proba(bad)
    for proba, labels, message in [
        (p * 0.9, y, "sums to 0.9"),
        (np.log(p), y, "logits"),
        (p, y % 2 + 5, "cannot be told"),
        (p, y[:40], "40 rows, 50 are expected"),
        (p[:0], y[:0], "0 calibration rows"),
        (p[:, 0], y, "shape"),
    ]:
        with pytest.raises(DataError, match=message):
            method().calibrate_proba(proba, labels)
    with pytest.raises(DataError, match="2 columns, 3 classes"):
        m.predict_set_proba(p[:, :2])
    with pytest.raises(MethodError, match="max_memory"):
        method(max_memory=0).calibrate_proba(p, y)


@every_method
def test_empty_sets_are_kept_or_filled(method):
    if not accepts(method, "allow_empty"):
        pytest.skip("it keeps empty sets")
    p, y = sample(500, 4)
    free = method(alpha=0.6, random_state=0).calibrate_proba(p, y).predict_set_proba(p)
    filled = method(alpha=0.6, random_state=0, allow_empty=False).calibrate_proba(p, y).predict_set_proba(p)
    empty = ~free.any(axis=1)
    np.testing.assert_array_equal(filled[~empty], free[~empty])
    np.testing.assert_array_equal(filled[empty], np.eye(4, dtype=bool)[p[empty].argmax(axis=1)])
    assert empty.any()


@every_method
def test_life_of_the_object(method):
    X, y = make_classification(200, n_classes=3, n_informative=4, random_state=0)
    for m in variants(method, estimator=GaussianNB()):
        expected = m.fit(X, y).predict_set(X)
        for other in (pickle.loads(pickle.dumps(m)), copy.deepcopy(m)):
            np.testing.assert_array_equal(other.predict_set(X), expected)
        np.testing.assert_array_equal(clone(m).fit(X, y).predict_set(X), expected)
        m.fit(X[:100], y[:100])
        np.testing.assert_array_equal(m.fit(X, y).predict_set(X), expected)
        with pytest.raises(DataError):
            m.calibrate(X, np.full(200, 9))
        np.testing.assert_array_equal(m.predict_set(X), expected)
        assert m.predict_set(X[:0]).shape == (0, 3)
        assert m.predict(X[:0]).shape == (0,)


@every_method
def test_data_frames_and_categories_reach_the_model_unchanged(method):
    X, y = make_classification(200, n_features=4, random_state=0)
    frame = pd.DataFrame(X, columns=list("abcd"))
    m = method(DecisionTreeClassifier(max_depth=3), random_state=0).fit(
        frame, pd.Series(y).map({0: "no", 1: "yes"})
    )
    assert list(m.estimator_.feature_names_in_) == list("abcd")
    assert m.predict_set(frame).shape == (200, 2)


@every_method
def test_given_calibration_rows_are_used_and_training_rows_are_not(method):
    X, y = make_classification(300, n_classes=3, n_informative=4, random_state=0)
    m = method(random_state=0).fit(X[:150], y[:150], X[150:], y[150:])
    model = clone(m.estimator_).fit(X[:150], y[:150])
    proba = getattr(model, "predict_proba_heads", model.predict_proba)
    other = method(model, random_state=0).calibrate(X[150:], y[150:])
    np.testing.assert_array_equal(m.predict_set(X), other.predict_set(X))
    bare = method(random_state=0).calibrate_proba(proba(X[150:]), y[150:])
    np.testing.assert_array_equal(m.predict_set(X), bare.predict_set_proba(proba(X)))
    # fitted once, calibrated again from probabilities: the model stays
    m.calibrate_proba(proba(X[150:]), y[150:])
    np.testing.assert_array_equal(m.predict_set(X), bare.predict_set_proba(proba(X)))


def test_models_of_every_kind():
    torch = pytest.importorskip("torch")
    method = CARDS[0].load()
    X, y = make_classification(300, n_classes=3, n_informative=4, n_features=6, random_state=0)
    X = X.astype(np.float32)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.Dropout(0.5)).train()
    state = torch.get_rng_state()
    logits = method(net).calibrate(X, y)
    assert logits.outputs_ == "logits"
    assert net.training
    assert torch.equal(torch.get_rng_state(), state)
    proba = torch.softmax(net[0](torch.tensor(X)), dim=1)
    np.testing.assert_allclose(logits.predict_proba(X), proba.detach().numpy(), atol=1e-6)
    as_proba = method(torch.nn.Sequential(net, torch.nn.Softmax(dim=1))).calibrate(X, y)
    assert as_proba.outputs_ == "probabilities"
    np.testing.assert_array_equal(as_proba.predict_set(X), logits.predict_set(X))
    # one logit: the second of two classes
    one = method(torch.nn.Linear(6, 1)).calibrate(X, y > 0)
    assert one.predict_set(X).shape == (300, 2)

    function = method(lambda rows: np.full((len(rows), 3), 1 / 3)).calibrate(X, y)
    assert function.predict_set(X).all()
    assert method(LinearSVC().fit(X, y)).calibrate(X, y).outputs_ == "logits"
    with pytest.raises(DataError, match="sums to"):
        method(lambda rows: np.ones((len(rows), 3))).calibrate(X, y)
    with pytest.raises(MethodError, match="gives no probabilities"):
        method(object()).calibrate(X, y)
    with pytest.raises(MethodError, match="calibrate needs a trained model"):
        method().calibrate(X, y)
    with pytest.raises(MethodError, match="has no fit"):
        method(lambda rows: rows).fit(X, y)


@pytest.mark.parametrize("method", MARGINAL)
def test_groups_are_covered_by_themselves(method):
    p, y = sample(4000, 4)
    groups = np.where(p.max(axis=1) > 0.7, "easy", "hard")
    m = method().calibrate_proba(p[:2000], y[:2000], groups=groups[:2000])
    sets = m.predict_set_proba(p[2000:], [0.1, 0.2], groups=groups[2000:])
    assert sets.shape == (2, 2000, 4)
    hit = sets[:, np.arange(2000), y[2000:]]
    for group in ("easy", "hard"):
        assert abs(hit[0, groups[2000:] == group].mean() - 0.9) < 0.046
        alone = method().calibrate_proba(p[:2000][groups[:2000] == group], y[:2000][groups[:2000] == group])
        mine = groups[2000:] == group
        np.testing.assert_array_equal(sets[0, mine], alone.predict_set_proba(p[2000:][mine]))
    with pytest.warns(AssayWarning, match="1 of 2 rows are of a group without calibration rows"):
        two = m.predict_set_proba(p[:2], groups=["sea", "easy"])
    assert two[0].all()
    with pytest.raises(DataError, match="give the group"):
        m.predict_set_proba(p[:2])
    with pytest.raises(DataError, match="without groups"):
        method().calibrate_proba(p, y).predict_set_proba(p, groups=groups)


@pytest.mark.parametrize("method", MARGINAL)
def test_groups_in_small_blocks_and_randomised(method):
    p, y = sample(900, 5)
    groups = np.arange(900) % 3
    for m in variants(method):
        m.set_params(max_memory=2000).calibrate_proba(p, y, groups=groups)
        sets = m.predict_set_proba(p, groups=groups)
        for group in range(3):
            mine = groups == group
            alone = clone(m).set_params(max_memory=10**8).calibrate_proba(p[mine], y[mine])
            np.testing.assert_array_equal(sets[mine], alone.predict_set_proba(p[mine]))


def test_methods_with_thresholds_of_their_own_take_no_groups():
    p, y = sample(50, 3)
    own = [card.load() for card in CARDS]
    own = [method for method in own if method._make_calibrator is not SetClassifier._make_calibrator]
    assert own
    for method in own:
        with pytest.raises(MethodError, match="takes no groups"):
            method().calibrate_proba(p, y, groups=y)


@every_method
def test_a_thousand_classes_in_bounded_memory(method):
    rng = np.random.default_rng(0)
    p = rng.random((3000, 1000), dtype=np.float32) ** 20
    p /= p.sum(axis=1, keepdims=True)
    y = (p.cumsum(axis=1) < rng.random((3000, 1))).sum(axis=1).clip(max=999)
    m = method(random_state=0)
    m.calibrate_proba(p[:2000], y[:2000], classes=np.arange(1000))
    tracemalloc.start()
    sets = m.predict_set_proba(p[2000:])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak - sets.nbytes < 20 * 2**20
    assert sets[np.arange(1000), y[2000:]].mean() > 0.86


def test_nothing_global_changes():
    p, y = sample(200, 3)
    filters = list(warnings.filters)
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    for card in CARDS:
        for m in variants(card.load()):
            m.calibrate_proba(p, y).predict_set_proba(p)
    assert warnings.filters == filters
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002
