"""What README and the documents say can be done, done."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from assay.cli.main import State, cli

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
_BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(path, language):
    """(options after the language, text) of each fenced block of one language."""
    return [
        (m[2].strip(), m[3]) for m in _BLOCK.finditer(path.read_text(encoding="utf-8")) if m[1] == language
    ]


def commands():
    found = {}
    for path in DOCUMENTS:
        for _, text in blocks(path, "sh"):
            for line in text.replace("\\\n", " ").splitlines():
                argv = shlex.split(line, comments=True)
                if argv[:1] == ["assay"]:
                    found[f"{path.name}: {shlex.join(argv)}"] = argv[1:]
    return found


_COMMANDS = commands()


@pytest.mark.parametrize("argv", _COMMANDS.values(), ids=_COMMANDS.keys())
def test_every_command_in_the_documents_parses(argv):
    with cli.make_context("assay", list(argv), obj=State()) as context:
        command = cli.get_command(context, argv[0])
        assert command is not None
        command.make_context(argv[0], list(argv[1:]), parent=context).close()


def test_the_documents_show_every_command():
    shown = {argv[0] for argv in _COMMANDS.values()}
    assert shown >= set(cli.list_commands(None))


def generator():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_parts_match_the_code():
    assert generator().outdated() == [], "run: make readme"


def test_every_method_has_a_page_that_names_its_class_and_paper():
    from assay.core.cards import all_cards

    pages = generator().pages()
    for card in all_cards().values():
        page = pages[f"methods/{card.id}.md"]
        assert card.cls.partition(":")[2] in page
        assert card.paper.get("title", "") in page
        assert f"[{card.id}]({card.id}.md)" in pages["methods/index.md"]


def test_the_command_on_every_methods_page_parses():
    for path, page in generator().pages().items():
        for line in re.findall(r"^assay compare .*", page, re.MULTILINE):
            argv = shlex.split(line)[1:]
            with cli.make_context("assay", argv, obj=State()) as context:
                command = cli.get_command(context, "compare")
                command.make_context("compare", argv[1:], parent=context).close()
            assert path.startswith("methods/")


def test_docstrings_become_lists():
    import reference

    made = reference._docstring(
        type(
            "C",
            (),
            {"__doc__": "Does it.\n\nParameters\n----------\nx : int, default 1\n    A ``number``.\n"},
        )
    )
    assert made == "Does it.\n\n**Parameters**\n\n- `x` (int, default 1):\n    A `number`."


# mkdocs --strict checks the links of docs/
@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_relative_links_lead_somewhere(name):
    targets = re.findall(r"\]\(([^)#:]+)\)", (ROOT / name).read_text(encoding="utf-8"))
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []
