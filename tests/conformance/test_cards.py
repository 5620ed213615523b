"""Every card is complete, and a method is named nowhere but in its own files."""

import inspect
import re
from pathlib import Path

import pytest

import assay
from assay.core.cards import all_cards, get_card, read_card

PACKAGE = Path(assay.__file__).parent
CARDS = list(all_cards().values())


@pytest.fixture(params=CARDS, ids=lambda card: card.id)
def card(request):
    return request.param


def test_card_says_what_a_user_must_know(card):
    for field in ("name", "summary", "use_for", "fails_when", "guarantee", "cost"):
        text = getattr(card, field)
        assert text.strip(), f"{card.id}: {field} is empty"
        assert text == text.strip()
    assert len(card.summary) <= 160
    for key in ("title", "authors", "venue", "year"):
        assert card.paper.get(key), f"{card.id}: paper.{key} is missing"
    assert 1950 <= card.paper["year"] <= 2100


def test_card_belongs_to_its_folder(card):
    path = Path(card.path)
    assert path.parent.name == card.family
    assert re.fullmatch(r"[a-z0-9+]+(-[a-z0-9+]+)*", card.id), "an id is lower case with hyphens"
    module = card.cls.partition(":")[0]
    assert (PACKAGE.parent / Path(*module.split("."))).with_suffix(".py").is_file()


def test_card_is_read_the_same_again(card):
    assert read_card(Path(card.path)) == card


def test_class_can_be_imported_and_made_with_its_defaults(card):
    if card.missing:
        pytest.skip(f"needs the extras {card.missing}")
    cls = card.load()
    parameters = inspect.signature(cls).parameters
    assert set(card.defaults) <= set(parameters), f"{card.id}: defaults that the constructor does not take"
    assert set(card.testing) <= set(parameters), f"{card.id}: testing arguments that it does not take"
    example = card.example.get("arguments", {})
    assert set(example) <= set(parameters), f"{card.id}: example arguments that it does not take"
    assert len(parameters) <= 11, "a method with more than about ten parameters is two methods"
    method = cls(**card.defaults)
    assert {name: method.get_params(deep=False)[name] for name in card.defaults} == dict(card.defaults)
    assert inspect.getdoc(cls)
    for name in parameters:
        assert re.search(rf"\b{name}\b", inspect.getdoc(cls)), f"{cls.__name__}: {name} is not documented"


def test_baselines_exist_and_do_the_same_task(card):
    assert card.id not in card.baselines
    for baseline in card.baselines:
        assert get_card(baseline).task == card.task
    if card.role == "paper":
        assert card.baselines, f"{card.id}: a paper's method is compared to baselines"


def test_exceptions_have_reasons(card):
    for law, reason in card.exceptions.items():
        assert len(reason) > 20, f"{card.id}: why is {law} not kept?"


def _files_of_methods():
    """Module, card and claim checks of each method: they name itself and its baselines."""
    inner = [
        v["class"] for card in CARDS for v in card.defaults.values() if isinstance(v, dict) and "class" in v
    ]
    classes = [card.cls for card in CARDS] + inner
    checks = [claim["check"] for card in CARDS for claim in card.claims if "check" in claim]
    own = {Path(card.path) for card in CARDS}
    for path in [*classes, *checks]:
        own.add(PACKAGE.parent / Path(*path.partition(":")[0].split(".")).with_suffix(".py"))
    return own


def _mentions(text, card):
    """Names of a method in a text: its class, or its id as a quoted string."""
    cls = card.cls.partition(":")[2]
    return re.findall(rf"\b{cls}\b|[\"'`]{re.escape(card.id)}[\"'`]", text)


#: a task names its reference method, the one to which others are compared by default
REFERENCES = re.compile(r"^\s*reference(: ClassVar\[str\])? = \"[a-z0-9-]+\"$", re.MULTILINE)
#: ids that are English words: only the class counts as a name
WORDS = {"split"}
#: scores are shared parts with names of their own, and the methods are called by their score; so is noise
NAMES_OF_PARTS = {
    Path("conformal/label_scores.py"): {"lac", "aps", "raps", "saps"},
    Path("conformal/binary_certificate.py"): {"laplace"},
    Path("conformal/smoothed_scores.py"): {"laplace", "lac"},
}


def test_no_old_file_names_a_method():
    own = _files_of_methods()
    found = []
    for path in sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.toml")]):
        if path in own:
            continue
        text = REFERENCES.sub("", path.read_text(encoding="utf-8"))
        if path.suffix == ".py":
            text = _without_docstrings(text)
        for card in CARDS:
            allowed = WORDS | NAMES_OF_PARTS.get(path.relative_to(PACKAGE), set())
            names = [name for name in _mentions(text, card) if name.strip("\"'`") not in allowed]
            if names:
                found.append(f"{path.relative_to(PACKAGE)} names {sorted(set(names))}")
    assert not found, "\n".join(found)


def _without_docstrings(text):
    """Code without its documentation, where examples may name methods."""
    return re.sub(r'"""(?:[^"\\]|\\.|"(?!""))*"""', '""', text)


def test_the_search_for_names_finds_them():
    card = CARDS[0]
    assert _mentions(f"x = {card.cls.partition(':')[2]}()", card)
    assert _mentions(f"methods = ['{card.id}']", card)
    assert not _mentions("methods = []", card)
    assert _without_docstrings('"""names "cp2" here"""\nx = 1') == '""\nx = 1'
