#!/usr/bin/env bash
# Builds .bench-env: this checkout beside the libraries it is measured against, in one interpreter.
#
#   bash benchmarks/environment.sh [python]
#
# Environment: BENCH_ENV, the folder (.bench-env); TORCH_INDEX, an index with CPU builds of torch.
# assay and what it stands on must install; a peer that cannot is named, and the others go on. What each
# peer needs so that it installs beside the others is said as it is done, and which can be imported, last.
# pip calls the numpy of puncc and the torchvision of TorchCP conflicts, which is what is meant.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${1:-python3}"
env="${BENCH_ENV:-.bench-env}"

say() { printf '== %s\n' "$*"; }
pip() { "$env/bin/python" -m pip install -qq --disable-pip-version-check "$@"; }
peer() { # peer NAME WHAT-IS-DONE COMMAND...
  local name="$1" what="$2"
  shift 2
  say "$name: $what"
  "$@" || say "$name: NOT INSTALLED, see above"
}
# torchsort's setup takes any nvcc on the PATH as a reason for a CUDA build, so it gets a PATH without one
without_nvcc() { PATH="$(cd "$env/bin" && pwd):/usr/bin:/bin" pip "$@"; }

[ -x "$env/bin/python" ] || "$python" -m venv "$env"
say "assay, and one numpy, scikit-learn and torch for all"
pip "torch==2.13.0" ${TORCH_INDEX:+--index-url "$TORCH_INDEX"}
pip "numpy==2.4.6" "scikit-learn==1.9.1" "scipy==1.17.1" "pandas==3.1.1" "numba==0.68.1" setuptools wheel
pip --editable ".[save,serve]"

peer crepes "as it comes" pip "crepes==0.9.1"
peer MAPIE "as it comes" pip "MAPIE==1.6.0"
peer puncc "asks for numpy < 2: without its dependencies; what is measured runs with numpy 2" \
  pip --no-deps "puncc==0.9.3"
peer torchsort "no wheel: compiled against the torch that is here, for the CPU; minutes" \
  without_nvcc --no-deps --no-build-isolation "torchsort==0.1.10"
peer TorchCP "drags in a CUDA torch and torchvision: without its dependencies, then those it imports" \
  pip --no-deps "torchcp==1.2.1"
peer TorchCP "what it imports" pip "torch_geometric==2.8.1" "transformers==5.24.0" tqdm matplotlib
peer laplace-torch "asks for torchvision: without its dependencies, then those it imports" \
  pip --no-deps -r tests/oracles.txt
# what suq 0.1.0 imports from its missing subpackage: pairs (mean, variance and label) to fit a scale by
complete_suq() {
  pip --no-deps "suq==0.1.0" tqdm
  local folder
  folder="$("$env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/suq/utils"
  mkdir -p "$folder"
  : >"$folder/__init__.py"
  cat >"$folder/utils.py" <<'PY'
import numpy as np
import torch


class torch_dataset(torch.utils.data.Dataset):
    def __init__(self, mean, variance, label):
        self.mean = torch.as_tensor(mean)
        self.rest = torch.as_tensor(np.hstack([variance, label]))

    def __len__(self):
        return len(self.mean)

    def __getitem__(self, i):
        return self.mean[i], self.rest[i]
PY
}
peer suq "its wheel lacks suq.utils: the one class that it imports from there is written here" complete_suq

say "what can be imported"
"$env/bin/python" benchmarks/peers/who.py
