import pytest
from report_cases import CASES


@pytest.fixture(scope="session", params=list(CASES))
def case(request):
    """(name, comparison) of every kind of outcome that the report must draw."""
    return request.param, CASES[request.param]()


@pytest.fixture(scope="session")
def page(case, tmp_path_factory):
    """(name, path of the written report)."""
    name, comparison = case
    return name, comparison.to_html(tmp_path_factory.mktemp("report") / f"{name}.html")
