"""The worked example of every method: put together from its card, run, read, and stopped where it fails."""

import ast
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import method_examples
import numpy as np
import pytest
from method_examples import ExampleError, Outcome
from method_readings import Reading, coverage, spread_of_sizes

import assay
from assay.core.cards import all_cards, get_card

CARDS = [card for card in all_cards().values() if method_examples.has_example(card) and not card.missing]


def test_only_methods_of_other_packages_have_no_example(tmp_path):
    ours = Path(assay.__file__).parent
    for card in all_cards().values():
        assert method_examples.has_example(card) == Path(card.path).is_relative_to(ours)
    assert not method_examples.has_example(replace(get_card("split"), path=str(tmp_path / "split.toml")))


@pytest.mark.parametrize("card", CARDS, ids=[card.id for card in CARDS])
def test_every_card_has_an_example_whose_code_names_its_class(card):
    text = method_examples.code(card)
    ast.parse(text)
    name = card.cls.partition(":")[2]
    assert re.search(rf"^method = {name}\(", text, re.MULTILINE)
    assert re.search(rf"^from assay\.{card.family} import .*\b{name}\b", text, re.MULTILINE)
    for placeholder in ("METHOD", "REFERENCE", '"NAME"', "PLAIN"):
        assert placeholder not in text
    arguments = {**card.defaults, **card.example.get("arguments", {})}
    for key, value in arguments.items():
        shown = value["class"].partition(":")[2] + "(" if isinstance(value, dict) else json.dumps(value)
        assert f"{key}={shown if not isinstance(value, bool) else value}" in text
    assert "testing" not in text
    assert max(map(len, text.splitlines())) <= 84


def test_each_template_and_each_table_is_used():
    used = {method_examples.template(card) for card in CARDS}
    assert used == {path.stem for path in method_examples.FOLDER.glob("*.py")}
    tables = {method_examples.data_of(card) for card in CARDS}
    assert tables == {path.stem for path in (method_examples.FOLDER / "data").glob("*.py")}


@pytest.mark.parametrize(
    "method", ["split", "cqr", "jackknife+", "ellipsoid", "lac", "ogd", "rps", "mondrian"]
)
def test_cheap_examples_run(method):
    found = method_examples.run(get_card(method))
    assert found.error == ""
    assert "90 % asked for" in found.printed
    share = float(re.search(r"([\d.]+)% of [\d,]+ (new rows|pairs|days)", found.printed)[1])
    assert found.words.startswith(f"{share:.1f} %")
    assert found.picture.count("<svg") >= 1
    assert "\n" not in found.picture
    page = "\n\n".join(method_examples.section(get_card(method), found))
    assert f"```text\n{found.printed}```" in page
    assert found.picture in page


def test_a_predictive_example_runs():
    pytest.importorskip("torch")
    found = method_examples.run(get_card("map-network"))
    assert found.error == ""
    assert "LogisticRegression" in found.printed
    assert "standard error" in found.words


def test_a_process_runs_many_and_says_what_came_out(monkeypatch):
    found = method_examples.run_all([get_card("split"), get_card("full-ridge")], processes=1)
    assert set(found) == {"split", "full-ridge"}
    assert found["split"].printed.count("it was") == 4


def test_a_failing_example_stops_the_build_by_name(tmp_path):
    """A copy of docs whose template for intervals divides by zero."""
    docs = tmp_path / "docs"
    docs.mkdir()
    source = method_examples.FOLDER.parent
    for path in source.glob("*.py"):
        (docs / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    (docs / "examples" / "data").mkdir(parents=True)
    for path in (source / "examples").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        (docs / path.relative_to(source)).write_text(
            text + "\n1 / 0\n" if path.stem == "interval" else text, encoding="utf-8"
        )
    script = (
        f"import sys; sys.path.insert(0, {str(docs)!r}); import method_examples\n"
        "from assay.core.cards import get_card\n"
        "method_examples.outcomes([get_card('full-ridge'), get_card('ogd')])\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "the example of full-ridge failed" in ended.stderr
    assert "\n    1 / 0\n" in ended.stderr
    assert "ZeroDivisionError" in ended.stderr
    assert "ogd" not in ended.stderr


def test_a_process_that_dies_takes_one_method_along(monkeypatch, tmp_path):
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import sys, os\n"
        "for line in sys.stdin:\n"
        "    if line.strip() == 'split': os._exit(7)\n"
        '    print(\'{"printed": "well"}\', flush=True)\n'
    )
    monkeypatch.setattr(method_examples, "__file__", str(worker))
    with pytest.raises(
        ExampleError, match=r"^the example of split failed:\nits process ended with status 7$"
    ):
        method_examples.run_all([get_card("split"), get_card("lac")], processes=1)
    assert method_examples.run_all([get_card("lac")], processes=1) == {"lac": Outcome("well")}


def test_examples_can_be_skipped_and_the_page_says_so(monkeypatch):
    monkeypatch.setenv(method_examples.SWITCH, "no")
    assert method_examples.outcomes(all_cards().values()) == {}
    page = method_examples.section(get_card("split"), None)
    assert page[-1] == "Not run in this build (EXAMPLES=no)."
    missing = replace(get_card("split"), requires=("torch",))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert (
        method_examples.section(missing, None)[-1] == "Not run here: it needs `pip install 'assay[torch]'`."
    )


def test_what_a_card_says_of_its_example_is_in_the_code():
    card = replace(
        get_card("split"),
        example={
            "data": "diabetes",
            "model": {"class": "sklearn.linear_model:Ridge", "solver": "svd"},
            "arguments": {"symmetric": False},
        },
    )
    text = method_examples.code(card)
    assert "load_diabetes" in text
    assert "from sklearn.linear_model import Ridge\n" in text
    assert 'estimator=Ridge(solver="svd"),' in text
    assert "symmetric=False," in text
    several = replace(card, example={"model": [{"class": "sklearn.linear_model:Ridge"}]})
    assert "estimator=[\n        Ridge(),\n    ]," in method_examples.code(several)


def test_warnings_stand_below_the_output(monkeypatch):
    text = "import warnings\nwarnings.warn('mind this')\nprint('said')\n"
    monkeypatch.setattr(method_examples, "code", lambda card: text)
    monkeypatch.setattr(method_examples, "_readings", lambda: {"interval": lambda *given: Reading([])})
    assert method_examples.run(get_card("split")).printed == "said\nUserWarning: mind this\n"


@pytest.mark.parametrize(
    ("covered", "said"), [(700, "it covers too little"), (900, "inside"), (990, "larger than they need be")]
)
def test_sentences_say_what_came_out(covered, said):
    names = {"X_train": np.empty((1000, 1)), "method": SimpleNamespace(calibration_size=0.5)}
    sentence = coverage(names, np.arange(1000) < covered, "of the rows are inside")
    assert sentence.startswith(f"{covered / 10:.1f} % of the rows are inside; 90 % were asked for.")
    assert "500 calibration rows and 1,000 new ones" in sentence
    assert sentence.endswith(f"{said}.")


def test_sentences_about_sizes():
    assert "as wide as any other" in spread_of_sizes(np.full(50, 3.0), "interval", "wide")
    assert spread_of_sizes(np.arange(1.0, 101.0), "interval", "wide").endswith("they differ from row to row.")
    assert spread_of_sizes(np.linspace(10, 11, 99), "set", "long").endswith("nearly the same for all rows.")
    assert spread_of_sizes([1.0, np.inf], "set", "long") == "50.0 % of the sets have no end."
