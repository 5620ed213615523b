"""The region task: what it refuses, its volumes in exact small cases, its pictures' material."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from region_toys import Boxes, BoxMethod, EllipseMethod, Ellipses, TwoDiscs
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.multioutput import MultiOutputRegressor
from sklearn.utils import get_tags

from assay.core.errors import DataError, MethodError, TaskError
from assay.data.read import as_table
from assay.tasks.infer import choose_task
from assay.tasks.outlines import outlines
from assay.tasks.region import RegionTask

TASK = RegionTask()
TENTH = Fraction(1, 10)


def table(n=800, scale=(1.0, 1.0), q=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    Y = X @ rng.normal(size=(3, q)) + rng.normal(size=(n, q))
    return as_table((X, Y * np.resize(scale, q)))


@pytest.fixture(scope="module")
def split():
    return TASK.split(table(), 0)


class Given:
    """A method whose regions are made from the test rows' number."""

    def __init__(self, make):
        self.make = make

    def fit(self, X, y):
        return self

    def predict_region(self, X, alpha=None):
        return self.make(len(X))


def boxes(half):
    return lambda n: Boxes(np.zeros((n, 2)), np.resize(np.asarray(half, dtype=float), (n, 2)))


def test_several_targets_ask_for_regions():
    name, why = choose_task(table(), alpha=TENTH)
    assert (name, why) == ("region", "region: 2 targets")


def test_a_split_keeps_the_targets_together(split):
    data = table()
    assert split.y_train.shape == (400, 2)
    np.testing.assert_array_equal(split.y_test, data.Y.to_numpy()[split.test_rows])


@pytest.mark.parametrize(
    ("columns", "target", "error", "message"),
    [
        ({}, "a", TaskError, r"for two targets or more, such as --target a,OTHER; for one target"),
        ({"b": list("uv") * 40}, "a,b", TaskError, r"the target 'b' is text \('u', 'v'\); a region needs"),
        ({"b": ["$1"] * 79 + ["$2"]}, "a,b", TaskError, r"take currency signs"),
        ({"b": [1.0] * 80}, "a,b", DataError, r"the target 'b' is constant: 1 in all 80 rows"),
        ({"b": [np.inf] + [1.0] * 79}, "a,b", DataError, r"'b' is infinite in 1 of 80 rows, first at row 0"),
        ({"b": np.arange(80.0) ** 2}, "a,b", DataError, r"the targets 'a' and 'b' are equal in every row"),
    ],
)  # fmt: skip
def test_refused_tables(columns, target, error, message):
    frame = pd.DataFrame(
        {"x": np.arange(80) % 17, "a": np.arange(80.0) ** 2, "b": np.arange(80.0), **columns}
    )
    with pytest.raises(error, match=message):
        TASK.check(as_table(frame, target), TENTH)


def test_targets_of_few_values_are_named():
    rows = table(n=800)
    assert TASK.notes(rows) == ()
    target = rows.targets[1]
    counted = rows.frame.assign(**{target: rows.frame[target].round()})
    (note,) = TASK.notes(replace(rows, frame=counted))
    assert f"{target} ({counted[target].nunique()})" in note
    assert rows.targets[0] not in note


def test_too_few_rows():
    with pytest.raises(TaskError, match=r"20 rows are too few at alpha 0.1"):
        TASK.check(table(20), TENTH)


def test_a_target_without_a_spread_in_training_is_refused():
    data = table(80)
    frame = data.frame.assign(y1=0.0)
    frame.loc[0, "y1"] = 1.0
    rare = as_table(frame, "y0,y1")
    seeds = [seed for seed in range(20) if 0 not in random_training_rows(seed)]
    with pytest.raises(DataError, match=r"'y1' is constant on the 40 training rows of seed"):
        TASK.split(rare, seeds[0])


def random_training_rows(seed, n=80):
    from assay.tasks.splitting import random_parts

    return random_parts(n, seed)[0]


def test_volumes_of_known_boxes(split):
    sd = split.y_train.std(axis=0)
    metrics = TASK.evaluate(Given(boxes(sd)), split, TENTH).metrics
    assert metrics["median_volume"] == metrics["mean_volume"] == pytest.approx(4.0, rel=1e-12)
    assert metrics["log_volume_per_dimension"] == pytest.approx(math.log(2.0), rel=1e-12)
    assert metrics["share_infinite"] == metrics["share_empty"] == 0
    assert metrics["coverage"] == (np.abs(split.y_test) <= sd).all(axis=1).mean()
    assert math.isnan(metrics["volume_quintile_gap"])


def test_units_of_the_targets_do_not_matter(split):
    other = TASK.split(table(scale=(1e-3, 4e6)), 0)
    one, two = (
        TASK.evaluate(EllipseMethod(LinearRegression()), rows, TENTH).metrics for rows in (split, other)
    )
    assert one["coverage"] == two["coverage"]
    for name in ("median_volume", "mean_volume", "log_volume_per_dimension"):
        assert one[name] == pytest.approx(two[name], rel=1e-9)


def test_infinite_and_empty_regions_are_counted_and_never_dropped(split):
    def make(n):
        half = np.ones((n, 2))
        half[0], half[1] = np.inf, 0.0
        return Boxes(np.zeros((n, 2)), half)

    outcome = TASK.evaluate(Given(make), split, TENTH)
    metrics, n = outcome.metrics, len(split.y_test)
    assert metrics["share_infinite"] == metrics["share_empty"] == 1 / n
    assert metrics["mean_volume"] == metrics["log_volume_per_dimension"] == np.inf
    assert metrics["median_volume"] == pytest.approx(4 / split.y_train.std(axis=0).prod())
    none = TASK.evaluate(Given(boxes([0.0, 0.0])), split, TENTH).metrics
    assert none["median_volume"] == none["coverage"] == 0
    assert math.isnan(none["log_volume_per_dimension"])


def test_a_logarithm_of_the_volume_is_taken_as_it_is():
    split = TASK.split(table(q=16, scale=[1e40]), 0)

    class Large(Boxes):
        def volume(self):
            raise AssertionError("not asked for")

        def log_volume(self):
            return np.log(2 * self.half).sum(axis=1)

    method = Given(lambda n: Large(np.zeros((n, 16)), np.full((n, 16), 1e40)))
    metrics = TASK.evaluate(method, split, TENTH).metrics
    expected = 16 * math.log(2) - np.log(split.y_train.std(axis=0) / 1e40).sum()
    assert metrics["log_volume_per_dimension"] == pytest.approx(expected / 16)
    assert metrics["median_volume"] == pytest.approx(math.exp(expected))


def test_the_size_that_decides_is_not_bought_with_a_few_rows(split):
    """Next to nothing for a tenth of the rows lowers the geometric mean without bound."""
    rng = np.random.default_rng(0)

    def make(n):
        half = np.full((n, 2), 9.0)
        half[rng.random(n) < 0.1] = 1e-100
        return Boxes(np.zeros((n, 2)), half)

    metrics = TASK.evaluate(Given(make), split, TENTH).metrics
    honest = TASK.evaluate(BoxMethod(LinearRegression()), split, TENTH).metrics
    assert metrics["log_volume_per_dimension"] < honest["log_volume_per_dimension"]
    assert metrics[TASK.size_metric] > honest[TASK.size_metric]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"contains": lambda Y: np.ones((len(Y), 2), bool)}, r"contains\(\) of shape \(200, 2\) \(bool\)"),
        ({"contains": lambda Y: np.ones(len(Y))}, r"contains\(\) of shape \(200,\) \(float64\)"),
        ({"volume": lambda: np.ones(3)}, r"volume\(\) of shape \(3,\)"),
        ({"volume": lambda: np.full(200, -1.0)}, r"volume\(\) .* is negative or NaN in 200 of 200 rows"),
        ({"volume": lambda: np.full(200, np.nan)}, r"negative or NaN in 200 of 200 rows"),
        ({"log_volume": lambda: np.full(200, np.nan)}, r"log_volume\(\) of predict_region is NaN in 200"),
        ({"volume": None}, r"gave a Boxes without volume\(\)"),
    ],
)  # fmt: skip
def test_broken_regions_are_refused(split, change, message):
    def make(n):
        region = boxes([1.0, 1.0])(n)
        vars(region).update(change)
        return region

    with pytest.raises(MethodError, match=message):
        TASK.evaluate(Given(make), split, TENTH)


def test_what_a_method_must_offer():
    assert TASK.accepts(BoxMethod()) is None
    assert TASK.accepts(LinearRegression) == "LinearRegression has no predict_region(X)"


def test_models_of_one_output_are_copied_for_each_target():
    for model in (HistGradientBoostingRegressor(), TASK.default_quantile_model()):
        assert isinstance(TASK.fitting(model), MultiOutputRegressor)
    linear = LinearRegression()
    assert TASK.fitting(linear) is linear
    assert get_tags(TASK.default_model()).target_tags.multi_output
    own = object()
    assert TASK.fitting(own) is own


@pytest.mark.parametrize("method", [BoxMethod, EllipseMethod])
def test_calibrated_regions_cover(split, method):
    outcome = TASK.evaluate(method(LinearRegression()), split, TENTH)
    low, high = outcome.detail["expected_coverage"]
    assert low <= outcome.metrics["coverage"] <= high
    assert outcome.detail["n_calib"] == 200


def area(lines):
    total = 0.0
    for x, y in (np.asarray(line).T for line in lines):
        total += abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2
    return total


@pytest.mark.parametrize(("kind", "pieces"), [(Boxes, 1), (Ellipses, 1), (TwoDiscs, 2)])
def test_outlines_enclose_the_volume(kind, pieces):
    region = kind(
        np.array([[0.0, 0.0], [5.0, -3.0], [9.0, 9.0]]), np.array([[1.0, 2.0], [0.3, 40.0], [1, 1]])
    )
    found = outlines(region, np.array([1, 0]), np.array([[-9.0, 9.0], [-9.0, 9.0]]))
    assert [len(lines) for lines in found] == [pieces, pieces]
    for lines, row in zip(found, (1, 0), strict=True):
        assert area(lines) == pytest.approx(region.volume()[row], rel=0.02)
        assert all(len(line) <= 90 for line in lines)


def test_outlines_of_empty_and_unbounded_regions():
    frame = np.array([[-4.0, 4.0], [-1.0, 1.0]])
    region = Boxes(np.zeros((3, 2)), np.array([[-1.0, -1.0], [np.inf, np.inf], [np.inf, 0.5]]))
    empty, whole, strip = outlines(region, np.arange(3), frame)
    assert empty == []
    assert area(whole) == pytest.approx(16, rel=0.1)
    assert area(strip) == pytest.approx(8, rel=0.1)


def test_a_ring_has_two_outlines():
    class Ring(Boxes):
        def contains(self, Y):
            r = np.linalg.norm(np.asarray(Y) - self.centre, axis=1)
            return (r >= 0.5) & (r <= 1)

    (lines,) = outlines(Ring(np.zeros((1, 2)), np.ones((1, 2))), np.array([0]), np.zeros((2, 2)))
    assert [round(area([line]), 1) for line in lines] == [3.1, 0.8]


def test_pictures_show_the_same_rows_for_every_method(split):
    made = [
        TASK.evaluate(method(LinearRegression()), split, TENTH).detail["plane"]
        for method in (BoxMethod, EllipseMethod)
    ]
    rows = [[region["row"] for region in plane["regions"]] for plane in made]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 6
    assert len(made[0]["background"]) <= 250
    for region in made[1]["regions"]:
        assert len(region["outlines"]) == 1
        assert set(region["y"]) <= set(np.round(split.y_test, 4).ravel()) or len(region["y"]) == 2


def test_rows_of_a_picture_do_not_depend_on_the_test_targets(split):
    from dataclasses import replace

    other = replace(split, y_test=split.y_test[::-1].copy())
    rows = [
        [r["row"] for r in TASK.evaluate(BoxMethod(LinearRegression()), s, TENTH).detail["plane"]["regions"]]
        for s in (split, other)
    ]
    assert rows[0] == rows[1]


def test_a_region_that_cannot_be_drawn_is_still_judged(split):
    class Bare:
        def __init__(self, n):
            self.n = n

        def contains(self, Y):
            return np.ones(self.n, dtype=bool)

        def volume(self):
            return np.ones(self.n)

    plane = TASK.evaluate(Given(Bare), split, TENTH).detail["plane"]
    assert [region["outlines"] for region in plane["regions"]] == [None] * 6


def test_more_than_two_targets_have_volumes_and_no_plane():
    detail = TASK.evaluate(BoxMethod(LinearRegression()), TASK.split(table(q=3), 0), TENTH).detail
    assert "plane" not in detail
    assert len(detail["volumes"]) == 5
    assert len(detail["target_sd"]) == 3


def test_a_target_of_almost_one_value_is_drawn_too():
    rng = np.random.default_rng(0)
    frame = table(4000).frame
    for rare in (rng.random(4000) < 0.003, np.arange(4000) == random_training_rows(0, 4000)[0]):
        split = TASK.split(as_table(frame.assign(y1=rare.astype(float)), "y0,y1"), 0)
        plane = TASK.evaluate(BoxMethod(LinearRegression()), split, TENTH).detail["plane"]
        (_, _), (low, high) = plane["frame"]
        assert low < split.y_test[:, 1].min() <= split.y_test[:, 1].max() < high
        assert any(region["outlines"] for region in plane["regions"])
