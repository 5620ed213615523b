"""Predictive distributions: one file per method with its card beside it, and the parts they share.

Public classes are imported lazily by name, such as ``from assay.bayes import MapNetwork``.
"""

from __future__ import annotations

from typing import Any

#: public names that are no methods and have no card
_PARTS: tuple[str, ...] = (
    "assay.bayes.streamlined:streamline",
    "assay.bayes.streamlined:StreamlinedModel",
    "assay.bayes.posterior:GaussianPosterior",
    "assay.bayes.moment_rules:register_rule",
    "assay.bayes.transformer:VisionTransformer",
    "assay.bayes.transformer:CausalTransformer",
    "assay.bayes.ensemble_forecast:EnsembleForecast",
    "assay.bayes.ensemble_equivalence:distributional_equivalence",
)


def _exports() -> dict[str, str]:
    from assay.core.cards import all_cards

    paths = [card.cls for card in all_cards().values() if card.family == "bayes"]
    return {path.partition(":")[2]: path for path in (*paths, *_PARTS) if path.startswith("assay.")}


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    exports = _exports()
    if name not in exports:
        raise AttributeError(f"module 'assay.bayes' has no attribute {name!r}")
    from assay.core.cards import import_object

    return import_object(exports[name])


def __dir__() -> list[str]:
    return sorted(_exports())
