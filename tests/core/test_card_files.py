"""Cards: read strictly; a broken card of another package takes nothing with it."""

import importlib.metadata
import sys

import pytest

from assay.core import cards
from assay.core.cards import get_card, import_object, read_card
from assay.core.errors import AssayWarning, MethodError

GOOD = """
id = "mine"
name = "Mine"
class = "{module}:Mine"
family = "mine"
task = "interval"
role = "baseline"
summary = "Mine."
"""


def write(tmp_path, text, name="mine.toml"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_card_without_frills(tmp_path):
    card = read_card(write(tmp_path, GOOD))
    assert (card.id, card.baselines, card.max_rows, dict(card.testing)) == ("mine", (), None, {})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id = 'x'", "missing keys"),
        (GOOD + "colour = 'red'", r"unknown keys \['colour'\]"),
        (GOOD + "baselines = 'split'", "baselines must be a list, got 'split'"),
        (GOOD + "max_rows = '300'", "max_rows must be a int"),
        (GOOD + "in_menu = 1", "in_menu must be a bool"),
        (GOOD + "defaults = 3", "defaults must be a dict"),
        (GOOD + "cost = 3", "cost must be a str"),
        (GOOD + "requires = ['fortran']", r"unknown extras \['fortran'\]; known"),
        (GOOD + "example = { rows = 3 }", r"unknown key 'rows' in \[example\]; there are: data, model"),
        (GOOD + "example = { data = 3 }", r"data in \[example\] must be a str, got 3"),
        (GOOD + "example = { model = 'a:B' }", r"model in \[example\] must be a dict or list, got 'a:B'"),
        (GOOD + "example = { model = [{ k = 3 }] }", "is a table with a class, got {'k': 3}"),
        (GOOD.replace('"baseline"', '"hero"'), "role must be 'paper' or 'baseline', got 'hero'"),
        (GOOD + "id = 'twice'", "not a valid card"),
        (b"\xff\xfe", "not a valid card"),
    ],
)
def test_broken_cards_are_refused_with_their_path(tmp_path, text, words):
    path = write(tmp_path, text)
    with pytest.raises(MethodError, match=words) as caught:
        read_card(path)
    assert str(path) in str(caught.value)


def test_imports_that_fail_say_which_part():
    with pytest.raises(MethodError, match=r"cannot import 'nowhere\.at_all'"):
        import_object("nowhere.at_all:Class")
    with pytest.raises(MethodError, match=r"did you mean nowhere:Class\?"):
        import_object("nowhere.py:Class")
    with pytest.raises(MethodError, match="has no 'OrderedDcit'; did you mean OrderedDict"):
        import_object("collections:OrderedDcit")
    with pytest.raises(MethodError, match=r"not of the form package\.module:Class"):
        import_object("collections.OrderedDict")


def test_an_unknown_id_names_the_nearest():
    some = next(iter(cards.all_cards()))
    with pytest.raises(MethodError, match=f"no method '{some}x'; nearest: .*{some}"):
        get_card(some + "x")


@pytest.fixture
def plugins(tmp_path, monkeypatch):
    """A maker of installed packages with an entry point each; cards are read anew."""
    points = []

    def add(module, card, *, missing=False):
        if not missing:
            write(tmp_path, "class Mine: ...", f"{module}.py")
            if card is not None:
                write(tmp_path, card.format(module=module), f"{module}.toml")
        points.append(importlib.metadata.EntryPoint(module, f"{module}:Mine", "assay.methods"))

    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points)
    monkeypatch.syspath_prepend(str(tmp_path))
    cards.all_cards.cache_clear()
    yield add
    cards.all_cards.cache_clear()
    for name in [name for name in sys.modules if name.startswith("assay_plugin")]:
        del sys.modules[name]


def test_another_packages_card_is_found(plugins):
    plugins("assay_plugin_a", GOOD)
    assert get_card("mine").load().__name__ == "Mine"


@pytest.mark.parametrize(
    ("card", "missing", "words"),
    [
        (None, False, "assay_plugin_b.toml"),
        ("id = 3", False, "missing keys"),
        (GOOD.replace('"mine"', '"split"', 1), False, "its id 'split' is that of"),
        (None, True, "module 'assay_plugin_b' is not there"),
    ],
)
def test_a_broken_one_is_left_out_with_a_warning(plugins, card, missing, words):
    plugins("assay_plugin_b", card, missing=missing)
    plugins("assay_plugin_c", GOOD)
    with pytest.warns(AssayWarning, match=rf"'assay_plugin_b' of another package .* is left out: .*{words}"):
        found = cards.all_cards()
    assert found["split"].cls.startswith("assay.")
    assert found["mine"].cls == "assay_plugin_c:Mine"


def test_two_plugins_with_one_id_keep_the_first(plugins):
    plugins("assay_plugin_d", GOOD)
    plugins("assay_plugin_e", GOOD)
    with pytest.warns(AssayWarning, match="its id 'mine' is that of"):
        assert cards.all_cards()["mine"].cls == "assay_plugin_d:Mine"
