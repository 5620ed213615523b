"""The page "Which interval for my problem?": every method is in it."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

from assay.core.cards import all_cards

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


def test_every_method_has_its_row(made):
    tables = made.tables()
    for card in chosen():
        assert f"[{card.id}](methods/{card.id}.md)" in tables
        assert card.guarantee.replace("|", "\\|") in tables
    rows = [line for line in tables.splitlines() if line.startswith("| ")]
    assert len({line.count(" | ") - line.count("\\|") for line in rows}) == 1


def test_only_the_page_is_changed(made, monkeypatch):
    monkeypatch.setattr(made, "tables", lambda: "TABLES")

    def page(path):
        return SimpleNamespace(file=SimpleNamespace(src_uri=path))

    assert made.on_page_markdown(TEXT, page("index.md"), None, None) == TEXT
    answer = made.on_page_markdown(TEXT, page("which-interval.md"), None, None)
    assert "\nTABLES\n" in answer
    assert "<!--" not in answer
