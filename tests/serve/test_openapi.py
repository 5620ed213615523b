"""Requests made from the OpenAPI description, good and bad: every answer is one that it describes."""

from collections import Counter
from fractions import Fraction

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("schemathesis")

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from questions import QUESTIONS, fitted
from schemathesis import GenerationMode
from schemathesis.checks import negative_data_rejection, positive_data_acceptance

from assay.serve.app import Limits, Service, build
from assay.serve.feedback import Feedback

#: the service reads more than it describes (numbers as text, further columns), as Python does; and that the
#: lists of columns are of one length, a schema cannot say
EXCLUDED = [negative_data_rejection, positive_data_acceptance]
_SCHEMAS = {}


def schema_of(question):
    if question not in _SCHEMAS:
        method = fitted(question)
        feedback = Feedback(method.alpha, Fraction(1, 20), method.about["n_calib"], "0" * 64)
        service = Service(method, {"file": "m.assay", **method.about}, feedback, Limits(rows=20, threads=1))
        _SCHEMAS[question] = schemathesis.openapi.from_asgi("/openapi.json", build(service))
    return _SCHEMAS[question]


def ask(question, method, path, mode, examples, derandomize=True):
    """Send made-up requests; how often each status was answered."""
    statuses = Counter()

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=derandomize,
        database=None,
        phases=[Phase.generate],  # shrinking takes minutes
        suppress_health_check=list(HealthCheck),
    )
    @given(case=schema_of(question)[path][method].as_strategy(generation_mode=mode))
    def send(case):
        response = case.call_and_validate(excluded_checks=EXCLUDED)
        statuses[response.status_code] += 1
        if mode == GenerationMode.POSITIVE and response.status_code != 200:
            assert response.status_code == 422
            assert "different numbers of values" in response.json()["detail"], response.json()

    send()
    return statuses


@pytest.mark.parametrize("path", ["/predict", "/feedback"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_rows_as_described_are_answered(question, path):
    assert ask(question, "POST", path, GenerationMode.POSITIVE, 16)[200] > 4


@pytest.mark.parametrize("path", ["/predict", "/feedback"])
@pytest.mark.parametrize("question", ["interval", "groups"])
def test_other_bodies_are_refused_in_the_described_way(question, path):
    assert ask(question, "POST", path, GenerationMode.NEGATIVE, 20)[422] > 10


@pytest.mark.parametrize("path", ["/coverage", "/about", "/health", "/ready", "/metrics"])
def test_what_is_asked_without_a_body_is_answered_as_described(path):
    assert ask("interval", "GET", path, GenerationMode.POSITIVE, 3).keys() == {200}


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/predict", "/feedback"])
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_many_made_up_requests(question, path, mode):
    ask(question, "POST", path, mode, 200, derandomize=False)
