"""Counters and histograms in the text format that Prometheus reads."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable

#: upper ends in seconds of the latency histogram
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """What the service has done since it began. May be used by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: dict[str, list[int]] = {}
        self._sum: dict[str, float] = {}
        self._counts: Counter[str] = Counter()

    def request(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count an answered request; ``path`` must be one of a few."""
        with self._lock:
            self._requests[method, path, status] += 1
            filled = self._seconds.setdefault(path, [0] * (len(BUCKETS) + 1))
            filled[bisect_left(BUCKETS, seconds)] += 1
            self._sum[path] = self._sum.get(path, 0.0) + seconds

    def add(self, name: str, amount: int) -> None:
        """Add to one of the plain counters."""
        with self._lock:
            self._counts[name] += amount

    def text(self, gauges: Iterable[tuple[str, str, float]]) -> str:
        """All of it; ``gauges`` are (name, help, value) of the moment."""
        with self._lock:
            requests, seconds = dict(self._requests), {path: list(v) for path, v in self._seconds.items()}
            sums, counts = dict(self._sum), Counter(self._counts)
        lines = _head("requests_total", "counter", "Requests answered, by status.")
        for (method, path, status), n in sorted(requests.items()):
            lines.append(f'assay_requests_total{{method="{method}",path="{path}",status="{status}"}} {n}')
        lines += _head("errors_total", "counter", "Requests answered with a status of 400 or more.")
        lines.append(f"assay_errors_total {sum(n for (_, _, s), n in requests.items() if s >= 400)}")
        lines += _head("request_seconds", "histogram", "Time from the head of a request to its answer.")
        for path, filled in sorted(seconds.items()):
            total = 0
            for end, n in zip((*BUCKETS, "+Inf"), filled, strict=True):
                total += n
                lines.append(f'assay_request_seconds_bucket{{path="{path}",le="{end}"}} {total}')
            lines.append(f'assay_request_seconds_sum{{path="{path}"}} {sums[path]!r}')
            lines.append(f'assay_request_seconds_count{{path="{path}"}} {total}')
        for name, text in _COUNTERS.items():
            lines += [*_head(name, "counter", text), f"assay_{name} {counts[name]}"]
        for name, text, value in gauges:
            lines += [*_head(name, "gauge", text), f"assay_{name} {value!r}"]
        return "\n".join(lines) + "\n"


_COUNTERS = {
    "rows_total": "Rows predicted.",
    "notices_total": "Notices about strange values in rows.",
}


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP assay_{name} {text}", f"# TYPE assay_{name} {kind}"]
