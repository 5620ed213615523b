"""A saved method on batches, as Ray Data gives them; with Ray itself in test_ray.py."""

import warnings

import numpy as np
import pandas as pd
import pytest

import assay
from assay.conformal import SplitConformalRegressor
from assay.core.archive import BrokenArchive
from assay.core.errors import AssayWarning, DataError, MethodError
from assay.engine.ray_data import BatchPredictor


@pytest.fixture(scope="module")
def homes():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"area": rng.uniform(20, 200, 400), "town": rng.choice(["Ulm", "Bonn"], 400)})
    table["price"] = 3 * table["area"] + rng.normal(0, 20, 400)
    return table.assign(id=range(400))


@pytest.fixture(scope="module")
def saved(homes, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "price.assay"
    assay.fit(homes[:300], "price", method="split", drop=["id"]).save(path)
    return path


@pytest.mark.parametrize("as_bytes", [False, True])
def test_batches_are_answered_as_the_whole_table(saved, homes, as_bytes):
    new = homes[300:].reset_index(drop=True)
    expected = assay.load(saved).predict(new[["area", "town"]])
    predictor = BatchPredictor(saved.read_bytes() if as_bytes else saved, keep=["id"])
    answers = pd.concat([predictor(new[start : start + 30]) for start in range(0, 100, 30)])
    assert list(answers["id"]) == list(new["id"])
    pd.testing.assert_frame_equal(answers.drop(columns="id"), expected)
    assert list(predictor(new[:0]).columns) == list(answers.columns)


def test_what_is_strange_is_said_and_what_is_wrong_refused(saved, homes, tmp_path):
    predictor = BatchPredictor(saved)
    with pytest.warns(AssayWarning, match="town"):
        predictor(homes[["area", "town"]].assign(town="Kiel"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predictor(homes[["area", "town"]].assign(town="Kiel"))
    assert predictor.notices.lines()[0].startswith("town: 800 rows")
    with pytest.raises(DataError, match="area"):
        predictor(homes[["town"]])
    with pytest.raises(BrokenArchive):
        BatchPredictor(saved.read_bytes()[:-1])
    bare = tmp_path / "bare.assay"
    assay.save(SplitConformalRegressor().calibrate_pred([1.0, 2.0], [1.5, 2.5]), bare)
    with pytest.raises(MethodError, match="SplitConformalRegressor has no columns"):
        BatchPredictor(bare)
