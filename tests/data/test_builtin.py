"""Built-in sets: the listing says the truth, and what is missing is named in one line."""

import os
import sys
from pathlib import Path

import pytest

import assay
from assay.core.errors import DataError, MissingDependency
from assay.data import builtin
from assay.data.read import as_table
from assay.tasks.infer import choose_task

SHARED = Path(os.environ.get("ASSAY_DATA") or Path(__file__).parents[3] / "shared" / "data")
SETS = {entry["name"]: entry for entry in builtin.listing()}


@pytest.mark.parametrize("name", SETS)
def test_listing_equals_what_is_loaded(name, monkeypatch):
    if "ASSAY_DATA" in SETS[name]["source"]:
        if not SHARED.is_dir():
            pytest.skip("needs the folder of data that ASSAY_DATA names")
        monkeypatch.setenv("ASSAY_DATA", str(SHARED))
    elif SETS[name]["missing"] is not None:
        pytest.skip(SETS[name]["missing"])
    table = builtin.load(name)
    entry = SETS[name]
    assert (len(table), table.X.shape[1], table.target, table.name) == (
        entry["rows"], entry["columns"], entry["target"], name,
    )  # fmt: skip
    assert choose_task(table)[0] == entry["task"]
    assert builtin.load(name).fingerprint == table.fingerprint


def test_datasets_is_a_frame():
    listed = assay.datasets()
    assert {"name", "task", "rows", "columns", "source", "licence", "installed"} <= set(listed.columns)
    assert listed.set_index("name").loc["digits", "installed"]


def test_names_are_read_as_tables():
    table = as_table("wine")
    assert (table.name, table.target, table.source) == ("wine", "cultivar", "built-in wine")
    assert set(table.y) == {"class_0", "class_1", "class_2"}
    assert as_table("wine", "alcohol").target == "alcohol"


def test_a_file_of_that_name_comes_first(tmp_path, monkeypatch):
    (tmp_path / "wine").write_text("a,b\n" + "".join(f"{i},{i * i}\n" for i in range(9)))
    monkeypatch.chdir(tmp_path)
    assert as_table("wine", "a").source == "wine"


def test_diamonds_does_not_import_its_package():
    if SETS["diamonds"]["missing"]:
        pytest.skip(SETS["diamonds"]["missing"])
    table = builtin.load("diamonds")
    assert "plotnine" not in sys.modules
    assert "a fixed sample of 4,000 of 53,940 rows" in table.notes


def test_unknown_and_missing_sets(monkeypatch, tmp_path):
    with pytest.raises(DataError, match=r"no built-in set 'diamond'; did you mean diamonds\?"):
        builtin.load("diamond")
    monkeypatch.delenv("ASSAY_DATA", raising=False)
    with pytest.raises(
        MissingDependency, match=r"set ASSAY_DATA to the folder that holds cqr-regression/bike"
    ):
        builtin.load("bike")
    monkeypatch.setenv("ASSAY_DATA", str(tmp_path))
    with pytest.raises(MissingDependency, match=r"bike needs .*bike\.csv\.gz, which is not there"):
        builtin.load("bike")
    find = builtin.importlib.util.find_spec
    monkeypatch.setattr(
        builtin.importlib.util, "find_spec", lambda name: None if name == "plotnine" else find(name)
    )
    with pytest.raises(MissingDependency, match=r"diamonds needs: pip install 'assay\[data\]'"):
        as_table("diamonds")
