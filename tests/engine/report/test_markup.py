"""Names, labels, groups and errors with markup in them: text in the report, never elements."""

import numpy as np
import pandas as pd
import pytest
from report_cases import MARKUP

import assay
from assay.conformal.lac import LACClassifier


class Breaks(LACClassifier):
    """Its error has markup in it."""

    def fit(self, X, y, X_calib=None, y_calib=None):
        raise ValueError(MARKUP)


@pytest.mark.filterwarnings("ignore")
def test_markup_from_the_user_is_text(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=150)
    frame = pd.DataFrame({f"x {MARKUP}": x, f"g {MARKUP}": rng.choice([MARKUP, f"b {MARKUP}"], 150)})
    frame[f"y {MARKUP}"] = np.where(x + rng.normal(size=150) > 0, f"yes {MARKUP}", f"no {MARKUP}")
    found = assay.compare(
        frame,
        f"y {MARKUP}",
        methods=["lac", (f"m {MARKUP}", Breaks())],
        seeds=1,
        group=f"g {MARKUP}",
        name=f"n {MARKUP}",
        in_process=True,
    )
    assert found.failed
    found.to_html(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "&lt;script&gt;alert" in page
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert "onerror=alert(1)>" not in page.replace("onerror=alert(1)&gt;", "")
