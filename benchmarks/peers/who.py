"""Which libraries stand beside assay, and which of them can be imported here."""

from __future__ import annotations

import importlib
import importlib.metadata
import warnings
from dataclasses import dataclass


@dataclass(frozen=True)
class Peer:
    """A library: its name in the tables, that of its distribution, and the module that is used of it."""

    name: str
    distribution: str
    module: str
    installed: str = "as it comes"

    def version(self) -> str | None:
        """The version that is installed, or None."""
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return None

    def trouble(self) -> str:
        """Why it cannot be used here, or an empty string."""
        if self.version() is None:
            return "not installed"
        try:
            importlib.import_module(self.module)
        except Exception as error:  # a library may fail in any way; the table says how
            return f"cannot be imported: {type(error).__name__}: {error}"
        return ""


PEERS = (
    Peer("crepes", "crepes", "crepes"),
    Peer("MAPIE", "MAPIE", "mapie.regression"),
    Peer("puncc", "puncc", "deel.puncc.api.prediction", "without its numpy < 2"),
    Peer("TorchCP", "torchcp", "torchcp.classification.score", "without its CUDA torch; torchsort compiled"),
    Peer("laplace-torch", "laplace-torch", "laplace", "without torchvision"),
    Peer("suq", "suq", "suq", "without its dependencies; the missing suq.utils written by the script"),
)

#: libraries that one may look for here; none has a counterpart in what assay does today
NOTHING_ALIKE = {
    "cleanlab": "finds wrong labels and outliers",
    "dattri": "attributes predictions to training rows",
}

STACK = ("assay", "numpy", "scipy", "scikit-learn", "torch")


def main() -> None:
    """One line a peer."""
    warnings.simplefilter("ignore")
    for name in STACK:
        print(f"{name} {importlib.metadata.version(name)}")
    for peer in PEERS:
        print(f"{peer.name} {peer.version() or '-'}: {peer.trouble() or 'ok'}")


if __name__ == "__main__":
    main()
