"""One thread a library in every test process: tables are tiny, and threads that wait for each other
on shared cores make gradient boosting a hundred times slower."""

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
