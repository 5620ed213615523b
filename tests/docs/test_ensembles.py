"""The examples of docs/ensembles.md run as they stand, one after the other."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ensembles.md"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_examples_run(capsys):
    pytest.importorskip("torch")
    names = {"__name__": "__main__"}
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    said = capsys.readouterr().out
    assert re.search(r"gained: [1-9]\d? members", said)
    assert "the next one would gain less" in said
    assert names["forecast"].n_members_ == names["trained"] < 30
