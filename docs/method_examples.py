"""The worked example of each method: real data, its class with the arguments of its card, what it answers.

The code is put together from docs/examples: a file of data, then the file of the method's task, in which
METHOD stands for the call of the class. All examples run when the site is built, many in each of two
processes; what they print, a picture and what to read from it stand below the code. One that fails, fails
the build. As a script this is such a process: it reads the ids of methods and answers with what came out.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import json
import linecache
import os
import queue
import re
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import assay
from assay.core.cards import Card, all_cards, get_card

FOLDER = Path(__file__).with_name("examples")
#: set it to "no" to build the site without running the examples, for work on words
SWITCH = "EXAMPLES"
PROCESSES = 2
_WIDTH = 80

#: template -> data of its examples where the card names no other
_DATA = {
    "interval": "diamonds",
    "interval-sets": "diamonds",
    "region": "carat-and-price",
    "label-set": "texas-housing",
    "label-set-groups": "survey",
    "online": "delhi",
    "predictive": "digits",
    "predictive-numbers": "diamonds",
    "poisoning": "all-digits",
    "poisoning-plain": "all-digits",
    "attack": "all-digits",
    "attack-plain": "all-digits",
}
_TREES = {"class": "sklearn.ensemble:HistGradientBoostingRegressor", "random_state": 0}
_FOREST = {"class": "sklearn.ensemble:RandomForestClassifier", "min_samples_leaf": 3, "random_state": 0}
#: template -> the model inside methods that take any
_MODEL = {
    "interval": _TREES,
    "region": {"class": "sklearn.ensemble:RandomForestRegressor", "min_samples_leaf": 10, "random_state": 0},
    "label-set": _FOREST,
    "label-set-groups": _FOREST,
    "predictive-numbers": _TREES,
}
#: what a predictive method stands beside, and what that one stands beside itself
_REFERENCE = "map-network"
_BASELINE = {"class": "sklearn.linear_model:LogisticRegression", "max_iter": 1000}


@dataclass(frozen=True)
class Outcome:
    """What came out of an example: what it printed, what to read from it, its picture; or how it failed."""

    printed: str = ""
    words: str = ""
    picture: str = ""
    error: str = ""
    seconds: float = 0.0


class ExampleError(RuntimeError):
    """An example failed."""


def template(card: Card) -> str:
    """The file of docs/examples for this method: its task's, or one for what its class offers beside."""
    cls = card.load()
    if card.task == "interval" and hasattr(cls, "predict_set"):
        return "interval-sets"
    if card.task == "label-set" and card.needs_groups:
        return "label-set-groups"
    if card.task == "poisoning" and not hasattr(cls, "certify"):
        return "poisoning-plain"
    if card.task == "attack" and not hasattr(cls, "certified_sets"):
        return "attack-plain"
    if card.task == "predictive" and _arguments(card).get("likelihood") == "regression":
        return "predictive-numbers"
    return card.task


def has_example(card: Card) -> bool:
    """Whether the method is one of this package: others need none of what stands here."""
    return Path(card.path).is_relative_to(Path(assay.__file__).parent)


def data_of(card: Card) -> str:
    """The name of the data of the example."""
    return str(card.example.get("data", _DATA[template(card)]))


def _arguments(card: Card) -> dict[str, Any]:
    return {**card.defaults, **card.example.get("arguments", {})}


def code(card: Card) -> str:
    """The example of one method: imports, data, method, answers."""
    kind = template(card)
    taken = inspect.signature(card.load().__init__).parameters
    arguments = _arguments(card)
    model = card.example.get("model", _MODEL.get(kind) if card.model == "any" else None)
    if model is not None and "estimator" in taken:
        arguments = {"estimator": model, **arguments}
    arguments |= {name: value for name, value in (("alpha", 0.1), ("random_state", 0)) if name in taken}
    beside = _BASELINE if card.id == _REFERENCE else {"class": get_card(_REFERENCE).cls, "random_state": 0}
    name = beside["class"].rpartition(":")[2] if beside is _BASELINE else _REFERENCE
    stand_for = {
        "METHOD": {"class": card.cls, **arguments},
        "REFERENCE": beside,
        "NAME": card.id,
        "PLAIN": name,
    }
    imports: set[tuple[str, str]] = set()

    def filled(found: re.Match[str]) -> str:
        value = stand_for[found[0]]
        if isinstance(value, str):
            return value
        start, end = found.string.rfind("\n", 0, found.start()), found.string.find("\n", found.end())
        others = found.start() - start - 1 + end - found.end()
        return _literal(value, imports, others)

    bodies = []
    for path in (FOLDER / "data" / f"{data_of(card)}.py", FOLDER / f"{kind}.py"):
        body, found = _without_imports(path.read_text(encoding="utf-8"))
        imports |= found
        bodies.append(re.sub(rf"\b({'|'.join(stand_for)})\b", filled, body + "\n").strip("\n"))
    return "\n\n".join([_import_lines(imports), *bodies]) + "\n"


def _without_imports(text: str) -> tuple[str, set[tuple[str, str]]]:
    """The text without docstring and imports, and these: (module, name), name empty for ``import module``."""
    lines, found = text.splitlines(), set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import):
            found |= {(f"{a.name} as {a.asname}" if a.asname else a.name, "") for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {(str(node.module), a.name) for a in node.names}
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            continue
        for i in range(node.lineno - 1, int(node.end_lineno or node.lineno)):
            lines[i] = ""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n"), found


def _import_lines(found: set[tuple[str, str]]) -> str:
    """Import lines in isort's order: other packages, then assay."""
    blocks = []
    for ours in (False, True):
        block = [pair for pair in found if pair[0].startswith("assay") == ours]
        lines = [f"import {module}" for module, name in sorted(block) if not name]
        for module in sorted({module for module, name in block if name}):
            names = ", ".join(sorted(name for of, name in block if of == module))
            lines.append(f"from {module} import {names}")
        blocks += ["\n".join(lines)] if lines else []
    return "\n\n".join(blocks)


def _literal(value: Any, imports: set[tuple[str, str]], others: int = 0) -> str:
    """A value of a card as Python; a table with a class is a call, on several lines where one is too long.

    ``others``: characters on its line before and after it.
    """
    if isinstance(value, Mapping) and "class" in value:
        module, _, name = value["class"].partition(":")
        imports.add((_public(value["class"]) or module, name))
        given = [(k, v) for k, v in value.items() if k != "class"]
        flat = f"{name}({', '.join(f'{k}={_literal(v, imports)}' for k, v in given)})"
        if others + len(flat) <= _WIDTH:
            return flat
        inner = [textwrap.indent(f"{k}={_literal(v, imports, 6 + len(k))},", "    ") for k, v in given]
        return "\n".join([f"{name}(", *inner, ")"])
    if isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        inner = [textwrap.indent(f"{_literal(item, imports)},", "    ") for item in value]
        return "\n".join(["[", *inner, "]"])
    return json.dumps(value) if isinstance(value, str) else repr(value)


@cache
def _exported() -> dict[str, str]:
    """Path of a class -> the family that gives it by name."""
    out: dict[str, str] = {}
    for card in all_cards().values():
        out[card.cls] = f"assay.{card.family}"
        nested = (
            value["class"] for value in card.defaults.values() if isinstance(value, dict) and "class" in value
        )
        out |= dict.fromkeys(
            (path for path in nested if path.startswith("assay.conformal")), "assay.conformal"
        )
    return out


def _public(path: str) -> str:
    return _exported().get(path, "")


def _readings() -> dict[str, Any]:
    """Template -> what makes sentences and pictures of its variables; imported where examples run."""
    import readings_of_others as others
    import readings_of_sets as sets

    return {
        "interval": sets.interval,
        "interval-sets": sets.interval_sets,
        "region": sets.region,
        "label-set": sets.label_set,
        "label-set-groups": sets.label_set,
        "online": others.online,
        "predictive": others.predictive,
        "predictive-numbers": others.predictive_numbers,
        "poisoning": others.poisoning,
        "poisoning-plain": others.poisoning,
        "attack": others.attack,
        "attack-plain": others.attack,
    }


def run(card: Card) -> Outcome:
    """Run the example of one method in this process."""
    reading = _readings()[template(card)]
    text, printed, name = code(card), io.StringIO(), f"<example of {card.id}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)  # for tracebacks
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(printed):
        warnings.simplefilter("default")
        try:
            names: dict[str, Any] = {"__name__": "__main__"}
            exec(compile(text, name, "exec"), names)
            found = reading(card.id, data_of(card), names)
            words, picture = found.words, found.picture
        except Exception:
            return Outcome(error=traceback.format_exc())
    said = dict.fromkeys(f"{type(w.message).__name__}: {w.message}" for w in caught)
    output = printed.getvalue() + "".join(textwrap.fill(line, _WIDTH) + "\n" for line in said)
    return Outcome(output, words, picture, seconds=time.perf_counter() - started)


def run_all(cards: Iterable[Card], processes: int = PROCESSES) -> dict[str, Outcome]:
    """Run the examples of all methods, a few processes at a time.

    Raises
    ------
    ExampleError
        Some failed; the message names them all and says where.
    """
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for card in cards:
        waiting.put(card.id)
    done: dict[str, Outcome] = {}
    threads = [threading.Thread(target=_feed, args=(waiting, done)) for _ in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failed = {method: found.error for method, found in done.items() if found.error}
    if failed:
        raise ExampleError("\n".join(f"the example of {m} failed:\n{error}" for m, error in failed.items()))
    return done


def _feed(waiting: queue.SimpleQueue[str], done: dict[str, Outcome]) -> None:
    """Give one process a method after the other; one that dies takes its method along, and is replaced."""
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    process: subprocess.Popen[str] | None = None
    while True:
        try:
            method = waiting.get_nowait()
        except queue.Empty:
            break
        if process is None or process.poll() is not None:
            process = subprocess.Popen(
                [sys.executable, __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **one_thread},
            )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(method + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if line:
            done[method] = Outcome(**json.loads(line))
        else:
            done[method] = Outcome(error=f"its process ended with status {process.wait()}")
    if process is not None:
        process.communicate()


def section(card: Card, outcome: Outcome | None) -> list[str]:
    """The part of a method's page: data, code, output, picture, what to read from it."""
    if not has_example(card):
        return []
    if card.missing:
        return ["## Example", f"Not run here: it needs `pip install 'assay[{','.join(card.requires)}]'`."]
    about = ast.get_docstring(
        ast.parse((FOLDER / "data" / f"{data_of(card)}.py").read_text(encoding="utf-8"))
    )
    parts = ["## Example", str(about), f"```python\n{code(card)}```"]
    if outcome is None:
        return [*parts, f"Not run in this build ({SWITCH}=no)."]
    return [*parts, f"prints\n\n```text\n{outcome.printed}```", outcome.words, outcome.picture]


def outcomes(cards: Iterable[Card]) -> dict[str, Outcome]:
    """What came out of all examples; nothing where the switch says to skip them."""
    if os.environ.get(SWITCH) == "no":
        return {}
    return run_all(card for card in cards if has_example(card) and not card.missing)


def main() -> None:
    """Answer each id on standard input with a line of JSON; what examples print goes elsewhere."""
    for line in sys.stdin:
        print(json.dumps(asdict(run(get_card(line.strip())))), flush=True)


if __name__ == "__main__":
    main()
