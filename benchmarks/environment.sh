#!/usr/bin/env bash
# Builds .bench-env: this checkout beside the libraries it is measured against, in one interpreter.
#
#   bash benchmarks/environment.sh [python]
#
# Two peers cannot be installed plainly beside the others:
#   puncc 0.9.3 asks for numpy < 2, which no current scikit-learn stack shares. It is installed without
#     its dependencies; the parts measured here run with numpy 2.
#   TorchCP 1.2.1 needs torchsort, which has no wheel: it is compiled against the torch that is there, so
#     torch comes first and build isolation is off. torchsort's setup takes any `nvcc` on the PATH as a
#     reason for a CUDA build; it is given a PATH without one. TorchCP itself comes without its
#     dependencies (torchvision is not needed), then torch_geometric and transformers, which it imports.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${1:-python3}"
env=.bench-env

"$python" -m venv "$env"
pip() { "$env/bin/python" -m pip install --quiet "$@"; }
pip "torch==2.13.0" ${TORCH_INDEX:+--index-url "$TORCH_INDEX"}
pip "numpy==2.4.6" "scikit-learn==1.9.1" "scipy==1.17.1" "pandas==3.1.1"
pip "crepes==0.9.1" "MAPIE==1.6.0"
pip --no-deps "puncc==0.9.3" "torchcp==1.2.1"
pip setuptools wheel
PATH="$(cd "$env/bin" && pwd):/usr/bin:/bin" pip --no-deps --no-build-isolation "torchsort==0.1.10"
pip "torch_geometric==2.8.1" "transformers==5.24.0" tqdm matplotlib
pip --editable ".[save,serve]"
"$env/bin/python" - <<'PY'
import importlib.metadata as m
import importlib
for name, module in [("assay", "assay"), ("crepes", "crepes"), ("MAPIE", "mapie.regression"),
                     ("puncc", "deel.puncc.api.prediction"), ("torchcp", "torchcp.classification.score")]:
    try:
        importlib.import_module(module)
        print(f"{name} {m.version(name)}: ok")
    except Exception as error:
        print(f"{name} {m.version(name)}: cannot be imported: {type(error).__name__}: {error}")
PY
