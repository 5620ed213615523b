"""Each endpoint and each limit of the service, in this process."""

import asyncio
import json
import logging
import threading
from fractions import Fraction
from time import monotonic, sleep

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("fastapi")

import httpx
from fastapi.testclient import TestClient
from questions import QUESTIONS, fitted, homes, records

from assay.core.errors import DataError, StoreError
from assay.data.schema import Notices
from assay.engine.coverage import check
from assay.serve.app import Limits, Service, build, plain
from assay.serve.feedback import Feedback

JSON = {"content-type": "application/json"}
_FITTED = {}


def service(question="interval", **limits):
    if question not in _FITTED:
        _FITTED[question] = fitted(question)
    method = _FITTED[question]
    feedback = Feedback(method.alpha, Fraction(1, 20), method.about["n_calib"], "0" * 64)
    return Service(method, {"file": "m.assay", **method.about}, feedback, Limits(**limits))


@pytest.fixture
def client():
    with TestClient(build(service())) as found:
        yield found


def new(n=60):
    return homes(1, n)


# --- predict -------------------------------------------------------------------------------------


@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_are_those_of_predict_to_the_bit(question):
    frame, asked = new(), service(question)
    features = frame.drop(columns=["price", "tax", "kind"])
    sent = records(features)
    columns = {name: [row[name] for row in sent] for name in reversed(features.columns)}
    expected = asked.fitted.predict(features, notices=Notices())
    with TestClient(build(asked)) as client:
        for body in ({"rows": sent}, {"columns": columns}):
            answer = client.post("/predict", json=body)
            assert answer.status_code == 200
            got = pd.DataFrame(answer.json()["answers"])
            pd.testing.assert_frame_equal(got, expected, check_exact=True, check_dtype=False)
            for name in got.select_dtypes("float"):
                assert got[name].to_numpy().tobytes() == expected[name].to_numpy(dtype=float).tobytes()


def test_many_at_a_time_get_their_own_answers():
    asked = service(threads=4)
    features = new(64).drop(columns=["price", "tax", "kind"])
    expected = asked.fitted.predict(features, notices=Notices())["lower"].tolist()

    async def ask_all():
        transport = httpx.ASGITransport(build(asked))
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            return await asyncio.gather(
                *[client.post("/predict", json={"rows": [row]}) for row in records(features)[:30]]
            )

    answers = asyncio.run(ask_all())
    assert [a.json()["answers"][0]["lower"] for a in answers] == expected[:30]
    asked.close()


def test_notices_come_beside_the_answers(client):
    row = {"area": 9e5, "rooms": 3, "town": "Rom", "new": True, "sold": "2024-02-01", "id": 7}
    notices = client.post("/predict", json={"rows": [row]}).json()["notices"]
    asked = Notices()
    _FITTED["interval"].predict(pd.DataFrame([row]), notices=asked)
    assert sorted(notices) == sorted(asked.lines())
    assert len(notices) == 3


def test_infinite_ends_are_text(monkeypatch):
    asked = service()
    ends = pd.DataFrame({"lower": [-np.inf, 0.5], "upper": [np.inf, np.nan]})
    monkeypatch.setattr(asked, "_predicted", lambda rows, notices: ends)
    with TestClient(build(asked)) as client:
        answer = client.post("/predict", json={"rows": [asked.example]})
    assert answer.json()["answers"] == [{"lower": "-inf", "upper": "inf"}, {"lower": 0.5, "upper": None}]
    assert plain({"a": [np.inf, float("nan"), -np.inf, 1.0]}) == {"a": ["inf", None, "-inf", 1.0]}


@pytest.mark.parametrize(
    "change",
    [
        {"area": "large"},
        {"sold": "yesterday"},
        {"new": None},
        {"new": "perhaps"},
        {"town": "2024-01-01"},
        {"rooms": {"a": 1}},
        {"rooms": [1, 2]},
    ],
)
def test_errors_have_the_words_of_python(client, change):
    row = {**service().example, **change}
    answer = client.post("/predict", json={"rows": [row]})
    with pytest.raises(DataError) as raised:
        _FITTED["interval"].predict(pd.DataFrame([row]))
    assert answer.status_code == 422
    assert answer.json() == {"detail": str(raised.value)}
    assert repr(next(iter(change))) in answer.json()["detail"]


def test_a_missing_column_is_named_with_the_one_that_it_may_be(client):
    row = service().example
    row["aera"] = row.pop("area")
    answer = client.post("/predict", json={"rows": [row]})
    assert answer.status_code == 422
    assert answer.json()["detail"] == "1 column is missing: 'area'; is it 'aera' for 'area'?"


# --- feedback ------------------------------------------------------------------------------------


@pytest.mark.parametrize("question", QUESTIONS)
def test_feedback_counts_what_the_check_counts(question):
    asked, frame = service(question), new(120)
    rows = records(frame)
    with TestClient(build(asked)) as client:
        for start in range(0, 120, 40):
            assert client.post("/feedback", json={"rows": rows[start : start + 40]}).json()["rows"] == 40
        said = client.get("/coverage").json()
        lines = client.get("/metrics").text.splitlines()
    part = check(asked.fitted, frame).parts[0]
    assert (said["rows"], said["covered"]) == (part.rows, part.covered)
    assert [said[name] for name in ("coverage", "low", "high", "p", "verdict")] == [
        part.coverage,
        part.low,
        part.high,
        part.p,
        part.verdict,
    ]
    assert f"assay_labelled_rows {part.rows}" in lines
    assert f"assay_covered_rows {part.covered}" in lines


def test_training_rows_and_rows_without_an_outcome_do_not_count(client):
    old, fresh = records(homes())[:5], records(new(3))
    answer = client.post("/feedback", json={"rows": old})
    assert answer.status_code == 422
    assert "no new row with an outcome in price: nothing to check" in answer.json()["detail"]
    fresh[1]["price"] = None
    answer = client.post("/feedback", json={"rows": old + fresh}).json()
    assert answer["rows"] == 2
    assert any("5 rows that it was fitted on, left out" in line for line in answer["notices"])
    answer = client.post("/feedback", json={"rows": [service().example]})
    assert answer.status_code == 422
    assert "the target 'price' is not among the columns" in answer.json()["detail"]
    assert client.get("/coverage").json()["rows"] == 2


def test_feedback_that_cannot_be_kept_is_503(client, monkeypatch, caplog):
    def full(*_):
        raise StoreError("cannot write /secret/state: No space left on device")

    monkeypatch.setattr(Feedback, "add", full)
    answer = client.post("/feedback", json={"rows": records(new(3))})
    assert answer.status_code == 503
    assert "secret" not in answer.text
    assert "No space left" in caplog.text


# --- limits --------------------------------------------------------------------------------------


def test_too_many_rows_or_bytes_are_413():
    with TestClient(build(service(rows=5, bytes=2000))) as client:
        row = service().example
        assert client.post("/predict", json={"rows": [row] * 5}).status_code == 200
        answer = client.post("/predict", json={"rows": [row] * 6})
        assert (answer.status_code, "6 rows" in answer.json()["detail"]) == (413, True)
        large = json.dumps({"rows": [{**row, "town": "x" * 2000}]})
        answer = client.post("/predict", content=large, headers=JSON)
        assert (answer.status_code, "2,000 bytes" in answer.json()["detail"]) == (413, True)
        pieces = (large[i : i + 100].encode() for i in range(0, len(large), 100))  # no content-length
        assert client.post("/predict", content=pieces, headers=JSON).status_code == 413


def test_only_json_is_taken(client):
    body = json.dumps({"rows": [service().example]})
    assert client.post("/predict", content=body, headers={"content-type": "text/plain"}).status_code == 415
    assert client.post("/predict", content=body).status_code == 415
    charset = {"content-type": "Application/JSON; charset=utf-8"}
    assert client.post("/predict", content=body, headers=charset).status_code == 200


@pytest.fixture
def stuck(monkeypatch):
    """A service with one thread and two places whose predictions wait to be let go."""
    asked, go = service(seconds=0.3, threads=1, requests=2), threading.Event()

    def slow(rows, notices):
        go.wait(10)
        return asked.first_answers

    monkeypatch.setattr(asked, "_predicted", slow)
    yield asked, go
    go.set()


def test_late_answers_are_504_and_their_places_taken_until_they_end(stuck):
    asked, go = stuck

    async def ask():
        transport = httpx.ASGITransport(build(asked))
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            body = {"rows": [asked.example]}
            late = await asyncio.gather(*[client.post("/predict", json=body) for _ in range(3)])
            held = asked.inside  # the second one waited for the thread, and was called off
            ready = (await client.get("/ready")).status_code, (await client.get("/health")).status_code
            go.set()
            until = monotonic() + 5
            while asked.inside and monotonic() < until:
                await asyncio.sleep(0.01)
            return late, held, ready, await client.post("/predict", json=body)

    late, held, ready, after = asyncio.run(ask())
    assert sorted(answer.status_code for answer in late) == [503, 504, 504]
    busy = next(answer for answer in late if answer.status_code == 503)
    assert busy.headers["retry-after"] == "1"
    assert held == 1
    assert ready == (200, 200)
    assert after.status_code == 200
    asked.close()


def test_a_full_service_is_not_ready(stuck):
    asked, go = stuck

    async def ask():
        transport = httpx.ASGITransport(build(asked))
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            waiting = [
                asyncio.create_task(client.post("/predict", json={"rows": [asked.example]})) for _ in range(2)
            ]
            await asyncio.sleep(0.1)
            ready = await client.get("/ready")
            go.set()
            return ready, await asyncio.gather(*waiting)

    ready, answers = asyncio.run(ask())
    assert ready.status_code == 503
    assert [answer.status_code for answer in answers] == [200, 200]
    asked.close()


def test_a_body_that_does_not_come_is_408():
    asked = service(seconds=0.2)

    async def slowly():
        yield b'{"rows": '
        await asyncio.sleep(2)
        yield b"[]}"

    async def ask():
        transport = httpx.ASGITransport(build(asked))
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            return await client.post("/predict", content=slowly(), headers=JSON)

    assert asyncio.run(ask()).status_code == 408
    assert asked.inside == 0
    asked.close()


def test_late_feedback_is_not_counted(monkeypatch):
    asked = service(seconds=0.2)
    count = asked.covered

    def slow(body):
        sleep(0.5)
        return count(body)

    monkeypatch.setattr(asked, "covered", slow)
    with TestClient(build(asked)) as client:
        assert client.post("/feedback", json={"rows": records(new(3))}).status_code == 504
        sleep(0.6)
        assert client.get("/coverage").json()["rows"] == 0


def test_threads_that_predict_start_no_further_ones():
    from threadpoolctl import threadpool_info

    asked = service()
    threads = [pool["num_threads"] for pool in asked._pool.submit(threadpool_info).result()]
    assert threads
    assert set(threads) == {1}
    asked.close()


# --- the rest ------------------------------------------------------------------------------------


def test_an_error_inside_gives_a_number_and_no_trace(client, monkeypatch, caplog):
    def broken(*_, **__):
        raise RuntimeError("secret detail")

    monkeypatch.setattr("assay.serve.app.json_lines", broken)
    with caplog.at_level(logging.ERROR, "assay.serve"):
        answer = client.post("/predict", json={"rows": [service().example]})
    assert answer.status_code == 500
    assert "secret" not in answer.text
    number = answer.json()["detail"].split()[-1]
    assert number in caplog.text
    assert "secret detail" in caplog.text
    assert 'path="/predict",status="500"} 1' in client.get("/metrics").text


def test_text_that_has_no_bytes_is_answered(client):
    row = json.dumps({"rows": [{**service().example, "\\u0000<script>": 1, "town": "\u2028\U0001f600"}]})
    answer = client.post("/predict", content=row, headers=JSON)
    assert answer.status_code == 200
    assert any("\U0001f600" in line for line in answer.json()["notices"])


def test_about_is_what_show_says(client):
    said = client.get("/about").json()
    for name in ("file", "method", "task", "targets", "alpha", "guarantee", "n_calib", "created"):
        assert said[name] == service().facts[name]
    assert said["limits"]["rows"] == 10_000


def test_other_paths_and_methods_are_answered_and_counted_together(client):
    assert client.get("/nowhere").json() == {"detail": "Not Found"}
    assert client.get("/nothing").status_code == 404
    assert client.get("/predict").status_code == 405
    assert client.get("/docs").status_code == 404  # those pages would load scripts from elsewhere
    text = client.get("/metrics").text
    assert 'assay_requests_total{method="GET",path="other",status="404"} 3' in text
    assert "nowhere" not in text


def test_metrics_are_in_the_format_of_prometheus(client):
    client.post("/predict", json={"rows": [{**service().example, "town": "Rom"}] * 3})
    client.post("/predict", content=b"{", headers=JSON)
    answer = client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = answer.text.splitlines()
    assert "assay_rows_total 3" in lines
    assert "assay_notices_total 1" in lines
    assert "assay_errors_total 1" in lines
    buckets = [int(line.split()[-1]) for line in lines if 'seconds_bucket{path="/predict"' in line]
    assert buckets == sorted(buckets)
    assert buckets[-1] == 2
    kinds = {line.split()[2]: line.split()[3] for line in lines if line.startswith("# TYPE")}
    for line in lines:
        if not line.startswith("#"):
            name, _, value = line.partition("{")[0].partition(" ")[0], None, float(line.split()[-1])
            base = name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
            assert name in kinds or kinds[base] == "histogram"
            assert value >= 0
