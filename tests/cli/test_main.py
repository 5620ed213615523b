"""What every command shares: help without heavy imports, errors in one line, exit statuses."""

import subprocess
import sys

import pytest

from assay.cli.main import run

_HEAVY = ("numpy", "pandas", "scipy", "sklearn", "rich", "torch", "pyarrow", "sqlite3")


@pytest.mark.parametrize(
    "line",
    [
        "--help",
        "--version",
        "compare --help",
        "verify --help",
        "monitor --help",
        "methods",
        "methods split",
        "datasets",
    ],
)
def test_light_commands_import_nothing_heavy(line):
    code = (
        "import sys\nfrom assay.cli.main import run\n"
        f"status = run({line.split()!r})\n"
        f"heavy = [name for name in {_HEAVY!r} if name in sys.modules]\n"
        "assert not heavy, heavy\nsys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert not done.stderr


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("comparre", "No such command 'comparre'; did you mean compare?"),
        ("compare", "give one FILE: a table, or class probabilities"),
        ("compare a.csv --sedes 3", "No such option"),
        ("compare a.csv --seeds 0", "--seeds"),
        ("compare a.csv --memory lots", "'lots' is not a size"),
        ("methods splt", "nearest: split"),
        ("methods --task intervall", "did you mean interval"),
        ("runs --store none.db", "there is no store at none.db"),
        ("report abc --store none.db", "there is no store at none.db"),
        ("compare nowhere.csv --target y", "nowhere.csv"),
        ("compare diamonds --methods :x", "cannot import ''"),
        ("compare diamonds --methods ../x:Y", "cannot import '../x'"),
        ("compare diamonds --methods broken_module:Y", "of 'broken_module:Y': ZeroDivisionError: division"),
        ("compare diamonds --report no/folder/out.html", "is not there"),
    ],
)
def test_errors_are_one_line_on_stderr_and_status_2(line, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken_module.py").write_text("1 / 0\n")
    assert run(line.split()) == 2
    out, err = capsys.readouterr()
    assert not out
    assert message in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_debug_shows_where(capsys):
    assert run(["--debug", "methods", "splt"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_error_inside_assay_has_its_own_status(capsys, monkeypatch):
    monkeypatch.setattr("assay.cli.methods.all_cards", lambda: 1 / 0)
    assert run(["methods"]) == 3
    assert capsys.readouterr().err == (
        "error inside assay: ZeroDivisionError: division by zero; --debug shows where\n"
    )


def test_interrupt(capsys, monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr("assay.cli.methods.all_cards", interrupted)
    assert run(["methods"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_reader_that_goes_away_is_no_error():
    command = f"{sys.executable} -m assay methods | true"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert not done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", ">&- 2>&-"])
def test_a_stream_that_the_shell_closed_is_no_error(closed):
    command = f'"{sys.executable}" -m assay datasets {closed}'
    assert subprocess.run(command, shell=True, capture_output=True, check=False).returncode == 0
