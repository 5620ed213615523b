"""Small models in many test processes: one thread each, or they wait for one another."""

import os

# before numpy, scikit-learn or torch start their thread pools
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
