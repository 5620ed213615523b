"""The identity of a trial: a SHA-256 of everything that its numbers depend on.

Data (values and schema), the task and its sources, the level, the method with its parameters and
sources, the model, the seed, and the versions of Python, this package and the libraries that
those sources import. Limits of time and memory are not part of it: they do not change a number,
only whether there is one.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import assay
from assay.core.cards import Card, all_cards
from assay.engine import bench
from assay.engine.describe import Describer
from assay.engine.plan import MethodSpec, Question
from assay.engine.sources import Sources, closure
from assay.tasks import Task

_SCHEME = "assay trial 1"
#: import name -> distribution, where they differ; anything else is looked up in the metadata
_DISTRIBUTIONS = {"sklearn": "scikit-learn"}
_ALWAYS = ("numpy", "pandas", "scipy", "sklearn")
#: extra of a card -> the libraries that come with it
_EXTRA_LIBRARIES = {
    "torch": ("torch",),
    "flows": ("torch", "zuko"),
    "ray": ("ray",),
    "stats": ("statsmodels",),
}


class Identities:
    """Computes the identities of one question's trials; sources are read once, on creation."""

    def __init__(self, question: Question, task: Task) -> None:
        self._common = _digest(
            _SCHEME,
            question.table.fingerprint,
            repr((question.table.targets, question.table.time, question.table.group)),
            question.task,
            Describer().text(dict(question.options)),
            closure([type(task).__module__]).digest,
            str(question.alpha),
            _digest(Path(bench.__file__).read_text(encoding="utf-8")),
        )
        self._model = _model_text(question, task)
        self._shared_model = task.over_time  # forecasts are the model's, whatever is put around them
        self._methods: dict[str, str] = {}

    def of(self, method: MethodSpec, seed: int) -> str:
        """64 hexadecimal digits. A skipped method's trials differ from those it would have run."""
        if method.name not in self._methods:
            self._methods[method.name] = self._method_digest(method)
        skipped = f"skipped: {method.skip}" if method.skip else ""
        return _digest(self._methods[method.name], str(seed), skipped)

    def _method_digest(self, method: MethodSpec) -> str:
        card = all_cards().get(method.card) if method.card else None
        text, sources = _target_text(method.target)
        params = Describer()
        described = params.text(dict(method.params))
        own = card is not None and card.model == "own" and not self._shared_model
        model_text, model_sources = ("", None) if own else self._model
        extra = closure(params.modules | set(_named_modules(method.params)))
        externals = sources.externals | extra.externals
        if model_sources is not None:
            externals |= model_sources.externals
        return _digest(
            self._common,
            text,
            sources.digest,
            described,
            extra.digest,
            card.model if card else "",
            model_text,
            model_sources.digest if model_sources else "",
            json.dumps(_versions(externals, card), sort_keys=True),
        )


def _named_modules(params: Mapping[str, Any]) -> Iterator[str]:
    """Modules of the classes that parameters name, as ``{ class = "module:Class" }`` of a card does."""
    for value in params.values():
        if isinstance(value, Mapping) and isinstance(value.get("class"), str):
            yield value["class"].partition(":")[0]


def _target_text(target: Any) -> tuple[str, Sources]:
    """What a path, class or object is, and the sources behind it."""
    if isinstance(target, str):
        return target, closure([target.partition(":")[0]])
    describer = Describer()
    text = describer.text(target)
    return text, closure(describer.modules)


def _model_text(question: Question, task: Task) -> tuple[str, Sources]:
    model = task.default_model() if question.model is None else question.model
    return _target_text(model)


def library_versions(names: frozenset[str] | set[str] | tuple[str, ...] = ()) -> dict[str, str]:
    """Versions of Python, assay, the scientific base and the named libraries that are installed."""
    versions = {"python": f"{sys.version_info.major}.{sys.version_info.minor}", "assay": assay.__version__}
    for name in sorted({*_ALWAYS, *names} - {"assay", "__main__"} - set(sys.stdlib_module_names)):
        version = _version(name)
        if version is not None:
            versions[_DISTRIBUTIONS.get(name, name)] = version
    return versions


def method_libraries(question: Question) -> set[str]:
    """The optional libraries that the cards of a question's methods say they need."""
    cards = all_cards()
    needed = (cards[method.card].requires for method in question.methods if method.card in cards)
    return {library for extras in needed for extra in extras for library in _EXTRA_LIBRARIES[extra]}


def _versions(externals: frozenset[str], card: Card | None) -> dict[str, str]:
    extras = card.requires if card else ()
    return library_versions(externals | {lib for extra in extras for lib in _EXTRA_LIBRARIES[extra]})


@cache
def _version(module: str) -> str | None:
    """Version of the distribution that provides a module; None where there is none."""
    try:
        return importlib.metadata.version(_DISTRIBUTIONS.get(module, module))
    except importlib.metadata.PackageNotFoundError:
        pass
    for distribution in _distributions().get(module, ()):
        return importlib.metadata.version(distribution)
    return None


@cache
def _distributions() -> dict[str, list[str]]:
    return dict(importlib.metadata.packages_distributions())


def _digest(*parts: str) -> str:
    return hashlib.sha256("\x1f".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
