"""``assay serve``: a saved method behind HTTP, on this machine unless told otherwise."""

from __future__ import annotations

import importlib.util
import ipaddress
import math
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from assay.cli.options import FILE, size, trust_option
from assay.cli.saved import loaded
from assay.core.errors import DataError, MissingDependency

if TYPE_CHECKING:
    import uvicorn


@click.command(short_help="Answer requests over HTTP with a saved method.")
@click.argument("saved", metavar="SAVED", type=FILE)
@click.option(
    "--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: any that is free."
)
@click.option(
    "--max-rows", type=click.IntRange(1), default=10_000, show_default=True, help="Rows of a request."
)
@click.option(
    "--max-bytes",
    callback=size,
    default="8M",
    show_default=True,
    metavar="SIZE",
    help="Bytes of the body of a request.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for a request, from its head to its answer.",
)
@click.option("--threads", type=click.IntRange(1), help="That predict.  [default: one a core, at most 4]")
@click.option(
    "--max-requests",
    type=click.IntRange(1),
    default=32,
    show_default=True,
    help="Requests being read, waiting or predicted at a time; others are told to come later.",
)
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Where the counts of feedback are kept.  [default: in memory, lost at the end]",
)
@click.option(
    "--restore", is_flag=True, help="Where the state is damaged, go back to the last one that is whole."
)
@click.option(
    "--level", default="0.05", show_default=True, metavar="SHARE", help="Chance of a false finding of drift."
)
@trust_option
def serve(
    saved: Path,
    host: str,
    port: int,
    max_rows: int,
    max_bytes: int,
    timeout: float,
    threads: int | None,
    max_requests: int,
    state: Path | None,
    restore: bool,
    level: str,
    trust: tuple[str, ...] | None,
) -> int:
    """Answer requests over HTTP with the method in SAVED: predictions, and the coverage of what came true.

    \b
    POST /predict    rows, as {"rows": [{...}, ...]} or {"columns": {...}}
    POST /feedback   rows with their outcomes, for
    GET  /coverage   has coverage drifted? The exact tests of `assay check`
    GET  /about /health /ready /metrics /openapi.json

    Whoever reaches the address may ask: there are no passwords. SIGTERM and Ctrl-C stop it after the
    requests at hand.

    \b
    Exit status: 0 stopped by a signal, 2 the file, the state or the address cannot be used.
    """
    for module in ("fastapi", "uvicorn"):
        if importlib.util.find_spec(module) is None:
            raise MissingDependency(f"assay serve needs {module}: pip install 'assay[serve]'")
    import uvicorn

    from assay.core.levels import parse_alpha
    from assay.engine.fitted import about
    from assay.serve.app import Limits, Service, build
    from assay.serve.feedback import Feedback, identity_of

    identity = identity_of(saved) if saved.exists() else ""
    with ExitStack() as stack:
        listener = stack.enter_context(_listening(host, port))
        fitted = loaded(saved, trust)
        feedback = Feedback(
            fitted.alpha, parse_alpha(level), int(fitted.about["n_calib"]), identity, state, restore=restore
        )
        stack.callback(feedback.close)
        if feedback.lost:
            click.echo(f"warning: restored; lost: {feedback.lost}", err=True)
        limits = Limits(max_rows, max_bytes, timeout, threads or min(4, os.cpu_count() or 1), max_requests)
        service = Service(fitted, {"file": saved.name, **about(saved)}, feedback, limits)
        stack.callback(service.close)
        config = uvicorn.Config(
            build(service),
            log_config=None,
            access_log=False,
            server_header=False,
            # idle connections count too; this only keeps them from eating all descriptors
            limit_concurrency=max_requests + 200,
            timeout_graceful_shutdown=math.ceil(timeout),
        )
        server = uvicorn.Server(config)
        stack.enter_context(_stopped_by_signals(server))
        _say(saved, listener, feedback.durable)
        server.run(sockets=[listener])
    return 0


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens, so that an address that cannot be had is known before anything is loaded."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address[:2], family=family)
        # connections take it over; without it an answer waits 40 ms for the client's word on its head
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        raise DataError(f"cannot listen on {host} port {port}: {error.strerror}") from error


def _say(saved: Path, listener: socket.socket, durable: bool) -> None:
    host, port = listener.getsockname()[:2]
    where = f"[{host}]" if ":" in host else host
    click.echo(f"serving {saved} at http://{where}:{port}")
    if not durable:
        click.echo("feedback is counted in memory and lost at the end; --state keeps it", err=True)
    if not ipaddress.ip_address(host).is_loopback:
        click.echo(
            f"warning: {host} can be reached from other machines, and whoever reaches it may ask: there are "
            "no passwords and no encryption; put a proxy with both before it",
            err=True,
        )


@contextmanager
def _stopped_by_signals(server: uvicorn.Server) -> Iterator[None]:
    """SIGTERM and SIGINT end the server, and nothing more.

    The server passes a signal on to the handlers that it found, once it has ended; they are these.
    """

    def note(*_: object) -> None:
        server.should_exit = True

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
