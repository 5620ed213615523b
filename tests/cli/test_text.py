"""Numbers, tables and warnings as people read them."""

import warnings

import pytest

from assay.cli import text
from assay.core.errors import AssayWarning


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.9, "0.9"), (0.89967, "0.8997"), (1234.567, "1,235"), (12345.6, "12,346"), (0, "0"), (-2.5, "-2.5"),
     (float("inf"), "inf"), (float("-inf"), "-inf"), (float("nan"), "-"), (None, "-"), (1e-7, "1.000e-07"),
     (3e12, "3.000e+12"), (0.000123456, "0.0001235"), (999.96, "1000")],
)  # fmt: skip
def test_number(value, shown):
    assert text.number(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.84, "0.8 s"), (9.99, "10.0 s"), (34.4, "34 s"), (59.7, "1 min 0 s"), (125, "2 min 5 s"),
     (4321, "1 h 12 min")],
)  # fmt: skip
def test_duration(seconds, shown):
    assert text.duration(seconds) == shown


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
