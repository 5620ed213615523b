"""Numbers, tables and warnings as people read them."""

import warnings

from assay.cli import text
from assay.core.cards import all_cards
from assay.core.errors import AssayWarning


def test_table_aligns_and_wraps_the_last_column(monkeypatch):
    monkeypatch.setattr(text, "table_width", lambda: 40)
    rows = [("a", "1", "short"), ("bb", "22", "a last column that is longer than the line")]
    lines = text.table(rows, ("id", "n", "what"), right=(1,)).splitlines()
    assert lines[:2] == ["id   n  what", "a    1  short"]
    assert lines[2].startswith("bb  22  a last column")
    assert lines[3].startswith(" " * 8)
    assert max(map(len, lines)) <= 40


def test_warnings_are_one_line_each_and_counted(capsys):
    before = warnings.showwarning
    with text.collected_warnings() as notices:
        for _ in range(3):
            warnings.warn("too\n few rows", AssayWarning, stacklevel=1)
        warnings.warn("something else", UserWarning, stacklevel=1)
    assert warnings.showwarning is before
    text.show_warnings(notices)
    assert capsys.readouterr().err.splitlines() == ["warning: too few rows", "warning: something else"]


def test_the_list_of_methods_leaves_columns_out_on_a_narrow_terminal(monkeypatch):
    from click.testing import CliRunner

    from assay.cli.methods import methods

    monkeypatch.setattr(text, "table_width", lambda: 80)
    lines = CliRunner().invoke(methods, []).output.splitlines()
    heads = [line.split() for line in lines if line.startswith("id ")]
    assert heads == [["id", "name", "needs", "paper"]] * len({card.task for card in all_cards().values()})
