"""What the documents show is run; here: that a block which does not do what it says is found."""

import shlex
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import code_blocks  # noqa: E402


@pytest.fixture
def run(tmp_path):
    """Runs a page of the given text; what failed."""
    files, page = tmp_path / "files", tmp_path / "page.md"
    files.mkdir()
    (files / "there.txt").write_text("7")

    def run(text):
        page.write_text(text)
        return code_blocks.run_in_process(page, files, tmp_path / "runs.db")

    return run


def block(language, *lines):
    return "\n".join([f"```{language}", *lines, "```", ""])


def test_blocks_share_their_names_and_find_the_files(run):
    text = block("python", "x = int(open('there.txt').read())") + "words\n" + block("python", "assert x == 7")
    assert run(text) == ""


def test_a_failing_block_is_named_by_its_line(run):
    text = "# Title\n\n" + block("python", "x = 1", "x / 0", "y = 2")
    assert run(text).startswith("page.md:5: ZeroDivisionError")
    assert run(block("python", "x = 1", "x = (")).startswith("page.md:3: SyntaxError")


def test_a_failing_command_is_named_by_its_line(run):
    found = run(
        "text\n\n" + block("sh", "# a comment", "assay datasets", "assay compare \\", "  no.csv --target y")
    )
    assert found.startswith("page.md:6: ")
    assert "no.csv" in found
    assert "nothing is known of the command 'rm'" in run(block("sh", "rm -r /"))


def test_a_file_of_a_block_can_be_imported_by_a_command(run):
    text = block("python", "# mine.py", "class Mine:", "    pass")
    text += block("python", "import mine", "assert mine.Mine().__class__.__module__ == 'mine'")
    assert run(text) == ""


def test_what_is_shown_as_printed_was_printed(run):
    shown = (
        block("python", "print('a   b')", "print('{\"c\": 0.30000000000000004}')") + "\n<!-- output -->\n\n"
    )
    assert run(shown + block("text", "a b")) == ""
    assert run(shown + block("text", "a c")).startswith("page.md:9: was not printed")
    assert run(shown + block("json", '{"c": 0.3}')) == ""
    assert run(shown + block("json", '{"c": 0.4}')).startswith("page.md:8: no such answer")


def test_a_page_that_hangs_is_ended(run, monkeypatch):
    monkeypatch.setattr(code_blocks, "PAGE_SECONDS", 2)
    assert "not done after 2 s" in run(block("python", "import time", "time.sleep(60)"))


def test_little_is_left_out():
    shown = {
        shlex.join(shlex.split(command, comments=True))
        for page in code_blocks.pages()
        for block in code_blocks.blocks(page)
        if block.language == "sh"
        for _, command in code_blocks.shell_lines(block)
    }
    assert code_blocks.NOT_RUN.keys() <= shown
    assert len(code_blocks.NOT_RUN) <= 3
    assert len(code_blocks.pages()) >= 18
