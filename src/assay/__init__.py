"""assay: does the method of that paper work on my data, against good baselines?

``import assay`` loads nothing heavy; each name below is imported on first use.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_EXPORTS = {
    "compare": "assay.engine.api",
    "certify": "assay.engine.certify",
    "fit": "assay.engine.fitting",
    "load": "assay.engine.fitted",
    "save": "assay.engine.fitted",
    "FittedMethod": "assay.engine.fitted",
    "Comparison": "assay.engine.comparison",
    "verify": "assay.claims.api",
    "methods": "assay.engine.api",
    "datasets": "assay.data.builtin",
    "AssayError": "assay.core.errors",
    "AssayWarning": "assay.core.errors",
    "DataError": "assay.core.errors",
    "MethodError": "assay.core.errors",
    "MissingDependency": "assay.core.errors",
    "TaskError": "assay.core.errors",
}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'assay' has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
