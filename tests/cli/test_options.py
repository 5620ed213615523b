"""Values of options: sizes, lists, where results are kept."""

import click
import pytest

from assay.cli import options
from assay.core.errors import DataError


@pytest.mark.parametrize(
    ("typed", "size"),
    [("2G", 2 * 1024**3), ("800M", 800 * 1024**2), ("1.5GiB", 3 * 1024**3 // 2), ("512 kb", 512 * 1024),
     ("100", 100)],
)  # fmt: skip
def test_size(typed, size):
    assert options.size(None, None, typed) == size


@pytest.mark.parametrize("typed", ["", "two", "-1G", "0", "1P", "G"])
def test_refused_size(typed):
    with pytest.raises(click.BadParameter, match="800M or 2G"):
        options.size(None, None, typed)


def test_names():
    assert options.names(None, None, "split, cqr,my.mod:Cls") == ("split", "cqr", "my.mod:Cls")
    with pytest.raises(click.BadParameter, match="empty name"):
        options.names(None, None, "split,,cqr")


def test_outputs_are_refused_before_the_work(tmp_path):
    with pytest.raises(DataError, match="is not there"):
        options.check_writable(tmp_path / "none" / "out.html")
    with pytest.raises(DataError, match="is a folder"):
        options.check_writable(tmp_path)
    options.check_writable(tmp_path / "out.html")


def test_no_output_takes_the_place_of_an_input_or_another_output(tmp_path):
    (tmp_path / "data.csv").write_text("a")
    (tmp_path / "link.csv").symlink_to("data.csv")
    read = (None, str(tmp_path / "data.csv"))
    for path in (tmp_path / "data.csv", tmp_path / "link.csv", tmp_path / "." / "data.csv"):
        with pytest.raises(DataError, match="it is read too"):
            options.check_outputs((None, path), *read)
    with pytest.raises(DataError, match="written twice"):
        options.check_outputs((tmp_path / "out", tmp_path / ".." / tmp_path.name / "out"), *read)
    options.check_outputs((tmp_path / "one", None, tmp_path / "two"), *read)
