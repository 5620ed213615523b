"""The table and the worked examples of which-interval.md, from the cards; a hook of MkDocs.

Each method of the interval and the region task gets one example: the data of its task, its class with
the arguments of its card, and what the answer of its contract says. The code is run when the site is
built and its output stands below it; code that fails, fails the build.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import re
import textwrap
import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any

from assay.core.cards import Card, all_cards

PAGE = "which-interval.md"

_DATA = {
    "interval": """\
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

X, y = load_diabetes(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=0)
""",
    "region": """\
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

X, progression = load_diabetes(return_X_y=True)
sugar = load_diabetes(scaled=False).data[:, -1]
X, Y = X[:, :-1], np.column_stack([progression, sugar])
X_train, X_test, Y_train, Y_test = train_test_split(X, Y, test_size=0.25, random_state=0)
""",
}
_ANSWER = {
    "interval": """\
lower, upper = method.predict_interval(X_test).T
inside = (lower <= y_test) & (y_test <= upper)
print(f"{inside.mean():.0%} of {len(y_test)} test rows inside, mean width {np.mean(upper - lower):.0f}")
print(f"first test row: {lower[0]:.0f} to {upper[0]:.0f}, it was {y_test[0]:.0f}")
""",
    "region": """\
region = method.predict_region(X_test)
inside = region.contains(Y_test)
print(f"{inside.mean():.0%} of {len(Y_test)} test rows inside, median area {np.median(region.volume()):.0f}")
""",
}
# a method of the interval task whose sets may be several intervals
_SETS = """\
sets = method.predict_set(X_test)
held = sets.contains(y_test)
print(f"the sets inside these intervals: {held.mean():.0%}, mean length {sets.volume().mean():.0f}")
"""
_TARGET = {"interval": "y_train", "region": "Y_train"}
_TITLES = {"interval": "One number", "region": "Several numbers at once"}
_ABOUT = {
    "interval": "442 patients, ten measurements each, and how far their diabetes had progressed a year later "
    "(scikit-learn's `load_diabetes`; between 25 and 346, standard deviation 77). Every example asks for "
    "90 % and starts with",
    "region": "The same patients, with nine measurements and two outputs: progression and blood sugar. Every "
    "example asks for 90 % of the pairs and starts with",
}
_MODELS = {
    "any": "any regressor; linear by default",
    "quantile": "a model of quantiles",
    "ridge": "least squares or ridge",
    "own": "brings its own model",
}


def cards() -> dict[str, list[Card]]:
    """Task -> its cards, of the tasks of this page."""
    return {task: found for task in _DATA if (found := [c for c in all_cards().values() if c.task == task])}


def table(task: str) -> str:
    """What each method of one task needs, guarantees and costs, and when it fails."""
    rows = [("method", "use it for", "needs", "guarantee", "cost", "fails when")]
    rows.append(("---",) * len(rows[0]))
    for card in cards()[task]:
        name = f"[{card.id}](methods/{card.id}.md)"
        extra = f"; `assay[{','.join(card.requires)}]`" if card.requires else ""
        rows.append(
            (
                f"**{name}**" if card.role == "paper" else name,
                card.use_for or card.summary,
                _MODELS[card.model] + extra,
                card.guarantee or "-",
                card.cost or "-",
                card.fails_when or "-",
            )
        )
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)


def code(card: Card) -> str:
    """The example of one method, after the data of its task."""
    cls = card.load()
    taken = inspect.signature(cls.__init__).parameters
    arguments = {**card.defaults, **card.example}
    arguments |= {name: value for name, value in (("alpha", 0.1), ("random_state", 0)) if name in taken}
    imports: dict[str, str] = {}
    call = _call(card.cls, arguments, imports)
    lines = [f"from {module} import {name}" for name, module in sorted(imports.items())]
    fitted = f"method = {call}.fit(X_train, {_TARGET[card.task]})"
    if len(fitted) > 100:
        fitted = f"method = {call}\nmethod.fit(X_train, {_TARGET[card.task]})"
    answer = _ANSWER[card.task]
    if card.task == "interval" and hasattr(cls, "predict_set"):
        answer += _SETS
    return "\n".join([*lines, "", fitted, answer])


def _call(path: str, arguments: Mapping[str, Any], imports: dict[str, str]) -> str:
    module, _, name = path.partition(":")
    imports[name] = "assay.conformal" if path in _public() else module
    given = ", ".join(f"{key}={_literal(value, imports)}" for key, value in arguments.items())
    return f"{name}({given})"


@cache
def _public() -> frozenset[str]:
    """Paths of the classes that ``assay.conformal`` gives by name: those of its cards."""
    return frozenset(card.cls for card in all_cards().values() if card.family == "conformal")


def _literal(value: Any, imports: dict[str, str]) -> str:
    if isinstance(value, Mapping) and "class" in value:
        return _call(value["class"], {k: v for k, v in value.items() if k != "class"}, imports)
    return json.dumps(value) if isinstance(value, str) else repr(value)


@cache
def output(task: str, text: str) -> str:
    """What the code prints after the data of its task, and the warnings that it gives."""
    printed = io.StringIO()
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(printed):
        warnings.simplefilter("always")
        exec(compile(_DATA[task] + text, f"<example of {PAGE}>", "exec"), {"__name__": "__main__"})
    said = dict.fromkeys(f"{type(w.message).__name__}: {w.message}" for w in caught)
    return printed.getvalue() + "".join(textwrap.fill(line, 100) + "\n" for line in said)


def example(card: Card) -> str:
    """One method's heading, example and output."""
    anchor = re.sub(r"[^a-z0-9]+", "-", card.id.replace("+", " plus")).strip("-")
    parts = [
        f"#### {card.name} {{ #example-{anchor} }}",
        f"[{card.id}](methods/{card.id}.md): {card.summary}",
    ]
    if card.missing:
        parts.append(f"Not run here: it needs `pip install 'assay[{','.join(card.requires)}]'`.")
        return "\n\n".join(parts)
    text = code(card)
    parts += [f"```python\n{text}```", f"```text\n{output(card.task, text)}```"]
    return "\n\n".join(parts)


def tables() -> str:
    """The tables of all tasks."""
    return "\n\n".join(f"### {_TITLES[task]}\n\n{table(task)}" for task in cards())


def examples() -> str:
    """The examples of all tasks, run."""
    parts = []
    for task, methods in cards().items():
        parts += [f"### {_TITLES[task]}: examples", _ABOUT[task], f"```python\n{_DATA[task]}```"]
        parts += [example(card) for card in methods]
    return "\n\n".join(parts)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """MkDocs calls this with each written page; this one gets its tables and examples."""
    if page.file.src_uri != PAGE:
        return markdown
    return markdown.replace("<!-- tables -->", tables()).replace("<!-- examples -->", examples())
