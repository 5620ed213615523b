"""One thread a fit: boosted trees wait for each other where the processor is shared."""

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True)
def _one_thread():
    with threadpool_limits(1):
        yield
