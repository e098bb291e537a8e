"""Statistics of a model since it was loaded, in the format of Triton's statistics extension.

Requests and executions are counted separately: an execution is one run of the model, whose batch
size is its number of rows. Times are those of this process: ``queue`` is how long decoded requests
waited for the model, not how long they waited in the sidecar.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Statistics", "Times"]


class Times(NamedTuple):
    """Times at which a batch passed each stage, in nanoseconds of one clock."""

    began: int
    decoded: int
    started: int
    ran: int
    encoded: int

    def parts(self) -> dict[str, int]:
        """Return the duration of each part, by its name in the statistics."""
        return {
            "success": self.encoded - self.began,
            "queue": self.started - self.decoded,
            "compute_input": self.decoded - self.began,
            "compute_infer": self.ran - self.started,
            "compute_output": self.encoded - self.ran,
        }


class _Duration:
    """Number of occurrences of something, and their total duration."""

    __slots__ = ("count", "ns")

    def __init__(self) -> None:
        self.count = self.ns = 0

    def add(self, ns: int, count: int = 1) -> None:
        """Add ``count`` occurrences of ``ns`` nanoseconds each."""
        self.count += count
        self.ns += ns * count

    def to_dict(self) -> dict[str, int]:
        """Return it in Triton's format."""
        return {"count": self.count, "ns": self.ns}


class Statistics:
    """Counts the requests and executions of one model; thread-safe.

    Args:
        wall_clock: Returns the seconds since the epoch.
    """

    def __init__(self, wall_clock: Callable[[], float] = time.time) -> None:
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Reset all counts."""
        self._last_s = 0.0
        names = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")
        self._requests = {name: _Duration() for name in names}
        self._executions: dict[int, _Duration] = {}

    def executed(self, rows: int, ns: int) -> None:
        """Record one run of the model over ``rows`` rows."""
        with self._lock:
            self._executions.setdefault(rows, _Duration()).add(ns)

    def answered(self, times: Times, done: int, failed: int) -> None:
        """Record the responses to one batch, ``failed`` of them with an error."""
        if not done + failed:
            return
        with self._lock:
            self._last_s = self._wall_clock()
            self._requests["fail"].add(times.encoded - times.began, failed)
            for name, ns in times.parts().items():
                self._requests[name].add(ns, done)

    def to_dict(self) -> dict[str, Any]:
        """Return the counts in the format of an entry of ``model_stats``."""
        with self._lock:
            executions = sorted(self._executions.items())
            return {
                "last_inference": round(self._last_s * 1000),
                "inference_count": sum(rows * each.count for rows, each in executions),
                "execution_count": sum(each.count for _, each in executions),
                "inference_stats": {name: each.to_dict() for name, each in self._requests.items()},
                "batch_stats": [
                    {"batch_size": rows, "compute_infer": each.to_dict()}
                    for rows, each in executions
                ],
                "memory_usage": [],
            }
