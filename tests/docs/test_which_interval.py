"""The page "Which interval for my problem?": every method in it, its examples run as shown."""

import ast
import importlib.util
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from assay.core.cards import all_cards, get_card

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "which-interval.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def made():
    spec = importlib.util.spec_from_file_location("which_interval", ROOT / "docs" / "which_interval.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def chosen():
    return [card for card in all_cards().values() if card.task in {"interval", "region"}]


def test_every_method_has_its_row_and_code_that_compiles(made):
    tables = made.tables()
    for card in chosen():
        assert f"[{card.id}](methods/{card.id}.md)" in tables
        assert card.guarantee.replace("|", "\\|") in tables
        if not card.missing:
            ast.parse(made.code(card))
    rows = [line for line in tables.splitlines() if line.startswith("| ")]
    assert len({line.count(" | ") - line.count("\\|") for line in rows}) == 1


@pytest.mark.parametrize("method", ["split", "cqr"])
def test_examples_run_and_cover(made, method):
    card = get_card(method)
    shown = made.example(card)
    text, printed = re.findall(r"^```\w+\n(.*?)^```$", shown, re.MULTILINE | re.DOTALL)
    assert printed == made.output.__wrapped__("interval", text)
    share = int(re.match(r"(\d+)% of 111 test rows inside", printed)[1])
    assert 80 <= share <= 98


def test_an_example_of_a_region_runs(made):
    method = """
from types import SimpleNamespace

class Everything:
    def predict_region(self, X):
        return SimpleNamespace(contains=lambda Y: Y[:, 0] + Y[:, 1] > 0, volume=lambda: [7, 7])

assert Y_train.shape == (len(X_train), 2) and X_train.shape[1] == 9
method = Everything()
"""
    printed = made.output("region", method + made._ANSWER["region"])
    assert printed == "100% of 111 test rows inside, median area 7\n"


def test_arguments_of_the_card_are_in_the_code(made):
    card = replace(
        get_card("split"),
        defaults={"symmetric": False},
        example={"estimator": {"class": "sklearn.linear_model:Ridge", "solver": "svd"}},
    )
    text = made.code(card)
    assert "from sklearn.linear_model import Ridge\n" in text
    assert (
        "method = SplitConformalRegressor("
        'symmetric=False, estimator=Ridge(solver="svd"), alpha=0.1, random_state=0)\n'
    ) in text


def test_what_goes_wrong_is_said(made, monkeypatch):
    with pytest.raises(ZeroDivisionError):
        made.output("interval", "1 / 0\n")
    assert "UserWarning: mind this\n" in made.output(
        "interval", "import warnings\nwarnings.warn('mind this')\n"
    )
    card = replace(get_card("split"), requires=("torch",))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'assay[torch]'" in made.example(card)


def test_only_the_page_is_changed(made, monkeypatch):
    monkeypatch.setattr(made, "tables", lambda: "TABLES")
    monkeypatch.setattr(made, "examples", lambda: "EXAMPLES")

    def page(path):
        return SimpleNamespace(file=SimpleNamespace(src_uri=path))

    assert made.on_page_markdown(TEXT, page("index.md"), None, None) == TEXT
    answer = made.on_page_markdown(TEXT, page("which-interval.md"), None, None)
    assert "\nTABLES\n" in answer
    assert "\nEXAMPLES\n" in answer
    assert "<!--" not in answer
