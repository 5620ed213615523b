"""A predictive method fitted for use: what it answers, coverage of what it says, saved and loaded."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import assay
from assay.core.levels import parse_alpha
from assay.tasks.base import Asked


def rows(n=300):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=n), "z": rng.normal(size=n)})
    frame["price"] = 3 * frame["x"] + rng.normal(size=n)
    frame["left"] = np.where(frame["price"] > 0, "yes", "no")
    return frame


@pytest.mark.parametrize(
    ("target", "model", "columns"),
    [
        ("price", LinearRegression(), ["prediction", "sd", "lower", "upper"]),
        ("left", LogisticRegression(), ["prediction", "entropy", "p_no", "p_yes"]),
    ],
)
def test_fitted_saved_and_loaded(tmp_path, target, model, columns):
    frame = rows()
    data = frame[["x", "z", target]]
    fitted = assay.fit(data, target, task="predictive", method="sklearn-model", model=model)
    answers = fitted.predict(frame[["x", "z"]])
    assert list(answers.columns) == columns
    loaded = assay.load(fitted.save(tmp_path / "model.assay"))
    pd.testing.assert_frame_equal(loaded.predict(frame[["x", "z"]]), answers)
    asked = Asked(fitted.method, fitted.prepare(frame[["x", "z"]]), parse_alpha("0.1"), (target,))
    inside, sizes = fitted.task.covered(asked, frame[target].to_numpy())
    assert 0.85 < inside.mean() <= 1
    if target == "price":
        np.testing.assert_allclose(sizes, answers["upper"] - answers["lower"])
        expected = (answers["lower"] <= frame["price"]) & (frame["price"] <= answers["upper"])
        np.testing.assert_array_equal(inside, expected)
    else:
        np.testing.assert_array_equal(sizes == 1, answers[["p_no", "p_yes"]].max(axis=1) >= 0.9)
        strange, _ = fitted.task.covered(asked, np.full(len(frame), "maybe"))
        assert not strange.any()
