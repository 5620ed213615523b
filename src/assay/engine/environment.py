"""What a trial's numbers rest on besides its question: versions and sources, to be equal on every machine.

The identity of a trial is made where the comparison was asked; a machine on which a library or a source
file is another one would put other numbers under it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from assay.engine.describe import Describer
from assay.engine.identity import library_versions
from assay.engine.plan import Question
from assay.engine.sources import Sources, closure


@dataclass(frozen=True)
class Environment:
    """Modules and libraries behind a question, and what they are on the machine that asks.

    ``facts`` holds a version, or a digest of sources, for each name.
    """

    modules: tuple[str, ...]
    libraries: frozenset[str]
    facts: Mapping[str, str]

    @classmethod
    def of(cls, question: Question) -> Environment:
        """The environment of a question on this machine."""
        modules = {"assay.engine.bench"}
        for value in (question.task, question.model, *(method.target for method in question.methods)):
            modules.update(_modules(value))
        for method in question.methods:
            modules.update(_modules(dict(method.params)))
        libraries = closure(modules).externals
        return cls(tuple(sorted(modules)), libraries, _facts(modules, libraries))

    def differences(self) -> list[str]:
        """How the machine on which this is called differs, one text a difference."""
        here = _facts(self.modules, self.libraries)
        return [_difference(name, self.facts.get(name), here.get(name)) for name in self._unequal(here)]

    def _unequal(self, here: Mapping[str, str]) -> list[str]:
        return [name for name in {**self.facts, **here} if self.facts.get(name) != here.get(name)]


def _modules(value: object) -> Iterable[str]:
    """Modules that are imported where the value is used; what a script defines travels by value."""
    if isinstance(value, str):
        return [value.partition(":")[0]] if ":" in value else []
    describer = Describer()
    describer.text(value)
    return describer.modules - {"__main__"}


def _facts(modules: Iterable[str], libraries: frozenset[str]) -> dict[str, str]:
    ours = {module for module in modules if module.partition(".")[0] == "assay"}
    facts = library_versions(libraries)
    facts["the sources of assay"] = _digest(closure(ours))
    for module in sorted(set(modules) - ours):
        facts[f"the sources of {module}"] = _digest(closure([module]))
    return facts


def _digest(sources: Sources) -> str:
    return sources.digest if sources.modules else "not there"


def _difference(name: str, there: str | None, here: str | None) -> str:
    if "not there" in (there, here) or not name.startswith("the sources of "):
        return f"{name}: {here or 'not installed'}, and {there or 'not installed'} where it was asked"
    return f"{name} differ"
