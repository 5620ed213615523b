"""The service: its endpoints, its limits, and what it says when something is wrong."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from threadpoolctl import threadpool_limits

from assay import __version__
from assay.core.errors import AssayError, StoreError
from assay.data.batches import json_lines
from assay.data.schema import Notices
from assay.engine.coverage import covered_rows
from assay.engine.fitted import FittedMethod
from assay.serve import contract
from assay.serve.body import TooLarge, read_rows
from assay.serve.feedback import Feedback
from assay.serve.metrics import CONTENT_TYPE, Metrics

T = TypeVar("T")
_PATHS = ("/predict", "/feedback", "/coverage", "/about", "/health", "/ready", "/metrics", "/openapi.json")
_log = logging.getLogger("assay.serve")


@dataclass(frozen=True)
class Limits:
    """What one request and all together may take.

    Attributes
    ----------
    rows : of a request
    bytes : of its body
    seconds : from its head to its answer
    threads : that predict
    requests : being read, waiting or predicted at a time
    """

    rows: int = 10_000
    bytes: int = 8 * 2**20
    seconds: float = 30.0
    threads: int = 2
    requests: int = 32


class Service:
    """A fitted method that is asked by many at a time, each in a thread, within limits.

    Parameters
    ----------
    fitted : FittedMethod
    facts : mapping
        What `assay show` says of it.
    feedback : Feedback
    limits : Limits
    """

    def __init__(
        self, fitted: FittedMethod, facts: Mapping[str, Any], feedback: Feedback, limits: Limits
    ) -> None:
        self.fitted, self.feedback, self.limits = fitted, feedback, limits
        self.facts = plain({**facts, "service": __version__, "limits": vars(limits)})
        self.metrics = Metrics()
        about = fitted.about
        self._known = list(
            dict.fromkeys(
                [*fitted.schema.names, *about["targets"], *([about["group"]] if about["group"] else [])]
            )
        )
        # threads of OpenMP are counted for each thread that starts them, those of BLAS for all together
        self._pool = ThreadPoolExecutor(
            limits.threads, "predict", initializer=threadpool_limits, initargs=(1,)
        )
        self._writer = ThreadPoolExecutor(1, "feedback")
        self._lock = threading.Lock()
        self._inside = 0
        self.example = contract.example(fitted)
        self.first_answers = self._predicted(pd.DataFrame([self.example]), Notices())

    @property
    def inside(self) -> int:
        """Requests that are being read, waiting or predicted."""
        with self._lock:
            return self._inside

    def predict(self, body: bytes) -> bytes:
        """The answer to the body of a request, both JSON."""
        notices = Notices()
        rows = read_rows(body, self._known, self.limits.rows)
        answers = self._predicted(rows, notices)
        lines = notices.lines()
        self.metrics.add("rows_total", len(answers))
        self.metrics.add("notices_total", len(lines))
        records = ",".join(line.rstrip("\n") for line in json_lines(answers))
        return b'{"answers":[%s],"notices":%s}' % (records.encode(), json.dumps(lines).encode())

    def covered(self, body: bytes) -> tuple[int, int, tuple[str, ...]]:
        """(covered rows, rows, notices) of the labelled rows in the body of a request; nothing is counted."""
        notices = Notices()
        rows = read_rows(body, self._known, self.limits.rows)
        covered, _, _ = covered_rows(self.fitted, rows, notices)
        self.metrics.add("notices_total", len(notices.lines()))
        return int(np.sum(covered)), len(covered), notices.lines()

    async def run(self, request: Request, work: Callable[[bytes], T]) -> T:
        """Read the body of a request and work on it in a thread, within the limits.

        A thread cannot be stopped: where the time is over the client is told, and the place is free again
        when the thread has ended.
        """
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise HTTPException(415, "the body must be JSON, with content-type: application/json")
        with self._lock:
            if self._inside >= self.limits.requests:
                raise HTTPException(
                    503,
                    f"{self.limits.requests} requests are being answered; try again later",
                    headers={"Retry-After": "1"},
                )
            self._inside += 1
        future: Future[T] | None = None
        try:
            async with asyncio.timeout(self.limits.seconds):
                body = await self._body(request)
                future = self._pool.submit(work, body)
                return await asyncio.wrap_future(future)
        except TimeoutError:
            if future is None:
                raise HTTPException(408, f"the body did not come within {self.limits.seconds:g} s") from None
            raise HTTPException(
                504, f"no answer within {self.limits.seconds:g} s; send fewer rows at a time"
            ) from None
        finally:
            if future is None:
                self._leave()
            else:
                future.add_done_callback(self._leave)

    async def count(self, covered: int, rows: int) -> None:
        """Keep the counts of labelled rows; on the disk, if that is where they go, when this returns."""
        await asyncio.get_running_loop().run_in_executor(self._writer, self.feedback.add, covered, rows)

    def close(self) -> None:
        """End the threads once they have done what they are at, and let the state go."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._writer.shutdown(wait=True)
        self.feedback.close()

    # --- inside ------------------------------------------------------------------------------------

    def _predicted(self, rows: pd.DataFrame, notices: Notices) -> pd.DataFrame:
        return self.fitted.predict(rows, notices=notices)

    def _leave(self, _: Any = None) -> None:
        with self._lock:
            self._inside -= 1

    async def _body(self, request: Request) -> bytes:
        """The whole body, refused as soon as it is known to be too large."""
        too_large = TooLarge(
            f"the body has more than {self.limits.bytes:,} bytes, which this service takes; send it in parts"
        )
        said = request.headers.get("content-length", "")
        if said.isdecimal() and int(said[:20]) > self.limits.bytes:
            raise too_large
        body = bytearray()
        try:
            async for piece in request.stream():
                if len(body) + len(piece) > self.limits.bytes:
                    raise too_large
                body += piece
        except ClientDisconnect:
            raise HTTPException(400, "the client left before the end of the body") from None
        return bytes(body)


def build(service: Service) -> FastAPI:
    """The ASGI application of a service, which whoever made it closes."""
    fitted, rows = service.fitted, service.limits.rows
    app = FastAPI(
        title=f"assay: {fitted.about['method']} for {fitted.target}",
        version=__version__,
        description=fitted.about["guarantee"] or "",
        docs_url=None,  # those pages load scripts from elsewhere
        redoc_url=None,
    )
    app.add_middleware(_Measured, metrics=service.metrics)
    _add_errors(app)

    @app.post(
        "/predict",
        summary="What the method says of each row, in the order of the rows",
        response_class=Response,
        responses=_responses(contract.answers_schema(service.first_answers), *_OF_ROWS),
        openapi_extra=_body_of(
            contract.request_schema(fitted, rows, outcomes=False), {"rows": [service.example]}
        ),
    )
    async def predict(request: Request) -> Response:
        return Response(await service.run(request, service.predict), media_type="application/json")

    @app.post(
        "/feedback",
        summary="Rows whose outcome is known by now: are they covered?",
        description="Rows on which the method was fitted, and rows without an outcome, are left out with a "
        "notice. Rows that are sent twice count twice. A request that was answered with an error was not "
        "counted.",
        response_class=Response,
        responses=_responses(_FEEDBACK, *_OF_ROWS),
        openapi_extra=_body_of(
            contract.request_schema(fitted, rows, outcomes=True),
            {"rows": [contract.example(fitted, outcomes=True)]},
        ),
    )
    async def feedback(request: Request) -> Response:
        covered, n, notices = await service.run(request, service.covered)
        await service.count(covered, n)
        return _json({"rows": n, "covered": covered, "notices": list(notices)})

    @app.get(
        "/coverage",
        summary="Has coverage drifted? The exact tests on all feedback so far",
        response_class=Response,
        responses=_responses(contract.COVERAGE),
    )
    async def coverage() -> Response:
        return _json(service.feedback.report())

    @app.get(
        "/about",
        summary="What the saved method is, as `assay show` says",
        response_class=Response,
        responses=_responses({"type": "object"}),
    )
    async def about() -> Response:
        return _json(service.facts)

    @app.get(
        "/health",
        summary="Whether the process answers",
        response_class=Response,
        responses=_responses(_HEALTH),
    )
    async def health() -> Response:
        return _json({"status": "ok"})

    @app.get(
        "/ready",
        summary="Whether there is room for a request",
        response_class=Response,
        responses=_responses(_HEALTH, 503),
    )
    async def ready() -> Response:
        if service.inside >= service.limits.requests:
            raise HTTPException(503, f"all {service.limits.requests} places are taken")
        return _json({"status": "ready"})

    @app.get(
        "/metrics",
        summary="Counters for Prometheus",
        response_class=Response,
        responses={
            200: {"description": "Counters", "content": {"text/plain": {"schema": {"type": "string"}}}}
        },
    )
    async def metrics() -> Response:
        covered, labelled = service.feedback.counts
        gauges = [
            ("requests_inside", "Requests being read, waiting or predicted.", service.inside),
            ("labelled_rows", "Rows of feedback so far.", labelled),
            ("covered_rows", "Rows of feedback whose answer held the outcome.", covered),
        ]
        return Response(service.metrics.text(gauges), media_type=CONTENT_TYPE)

    return app


def plain(value: Any) -> Any:
    """A value for JSON: what is no number becomes null, an infinite one the text "inf" or "-inf"."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


# ------------------------------------------------------------------------------------------- inside

_OF_ROWS = (408, 413, 415, 422, 503, 504)
_WORDS = {
    408: "The body did not come in time.",
    413: "Too many bytes or rows.",
    415: "The body is not said to be JSON.",
    422: "The rows cannot be used: what, in which column, how many.",
    503: "Too many requests at a time, or feedback cannot be kept.",
    504: "No answer in time.",
}
_HEALTH = {"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}}
_FEEDBACK = {
    "type": "object",
    "required": ["rows", "covered", "notices"],
    "properties": {
        "rows": {"type": "integer", "description": "Rows that were counted."},
        "covered": {"type": "integer", "description": "Those whose answer holds the outcome."},
        "notices": contract.NOTICES,
    },
}


def _responses(schema: Mapping[str, Any], *errors: int) -> dict[int | str, dict[str, Any]]:
    found: dict[int | str, dict[str, Any]] = {
        200: {"description": "The answer", "content": {"application/json": {"schema": dict(schema)}}}
    }
    for status in errors:
        content = {"application/json": {"schema": contract.DETAIL}}
        found[status] = {"description": _WORDS[status], "content": content}
    return found


def _body_of(schema: Mapping[str, Any], example: Mapping[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": dict(schema), "example": dict(example)}}
    return {"requestBody": {"required": True, "content": content}}


def _json(value: Any) -> Response:
    return Response(json.dumps(plain(value), allow_nan=False), media_type="application/json")


def _add_errors(app: FastAPI) -> None:
    """Errors on purpose as ``{"detail": text}``."""

    @app.exception_handler(AssayError)
    async def known(_: Request, error: Exception) -> Response:
        if isinstance(error, StoreError):
            _log.error("%s", error)
            return _detail(503, "the feedback could not be kept; the log of the service says why")
        return _detail(413 if isinstance(error, TooLarge) else 422, str(error))

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _detail(error.status_code, str(error.detail), error.headers)


def _detail(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    # escapes keep whatever stood in the request from being text that UTF-8 has no bytes for
    content = json.dumps({"detail": text}).encode()
    return Response(content, status, headers, media_type="application/json")


class _Measured:
    """Counts each request with its status and time; an error that nobody expected goes to the log."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception:  # whatever a model raises: the client gets a number and no trace
            number = secrets.token_hex(4)
            _log.exception("error %s in %s", number, scope["path"])
            said = _detail(500, f"an error inside the service; its log says more under {number}")
            await said(scope, receive, noted)
        finally:
            path = scope["path"] if scope["path"] in _PATHS else "other"
            method = scope["method"] if scope["method"] in ("GET", "POST") else "other"
            self._metrics.request(method, path, status, time.perf_counter() - start)
