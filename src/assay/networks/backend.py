"""torch, where a method that needs it is used."""

from __future__ import annotations

from typing import Any

from assay.core.errors import MissingDependency


def import_torch(what: str) -> Any:
    """The module torch, or one line that installs it for ``what``."""
    try:
        import torch
    except ImportError:
        raise MissingDependency(f"{what} needs: pip install 'assay[torch]'") from None
    return torch
