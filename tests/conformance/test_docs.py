"""What docs/testing.md shows works as shown."""

import importlib
import re
import tomllib
from pathlib import Path

from assay.testing import LAWS, check_method

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_code_of_the_page_runs(tmp_path, monkeypatch):
    (tmp_path / "page_of_testing.py").write_text("\n".join(blocks("python")), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    page = importlib.import_module("page_of_testing")
    results = check_method(page.AroundTheMedian)
    assert {result.status for result in results} == {"passed", "skipped"}
    checks = [param.values[0] for param in page.test_laws.pytestmark[0].args[1]]
    assert [check.name for check in checks] == [result.name for result in results]


def test_the_page_lists_every_law():
    assert dict(re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", PAGE, re.MULTILINE)) == LAWS


def test_its_card_snippets_are_toml():
    assert [list(tomllib.loads(block)) for block in blocks("toml")] == [["exceptions"], ["testing"]]
