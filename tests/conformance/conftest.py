"""One thread a library: the suite's tables are tiny, and two cores are shared by every test process."""

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    import sklearn.ensemble  # noqa: F401  loads OpenMP, so that its pool can be limited

    with threadpool_limits(1):
        yield
