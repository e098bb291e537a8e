"""What a model has done since it was loaded, as Triton's statistics extension writes it.

Counts of requests and of executions are kept apart: an execution is one run of the model, whose
batch size is its rows. Times are those of this process: ``queue`` is how long decoded requests
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
    """When a batch got where, in nanoseconds of one clock."""

    began: int
    decoded: int
    started: int
    ran: int
    encoded: int

    def parts(self) -> dict[str, int]:
        """How long each part took, by the name that it has in the statistics."""
        return {
            "success": self.encoded - self.began,
            "queue": self.started - self.decoded,
            "compute_input": self.decoded - self.began,
            "compute_infer": self.ran - self.started,
            "compute_output": self.encoded - self.ran,
        }


class _Duration:
    """How often something happened, and how long it took together."""

    __slots__ = ("count", "ns")

    def __init__(self) -> None:
        self.count = self.ns = 0

    def add(self, ns: int, count: int = 1) -> None:
        """It happened ``count`` times, and took ``ns`` each time."""
        self.count += count
        self.ns += ns * count

    def to_dict(self) -> dict[str, int]:
        """As it is written."""
        return {"count": self.count, "ns": self.ns}


class Statistics:
    """Counts what one model does; may be used by several threads.

    Args:
        wall_clock: seconds since the epoch.
    """

    def __init__(self, wall_clock: Callable[[], float] = time.time) -> None:
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Forget what was counted."""
        self._last_s = 0.0
        names = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")
        self._requests = {name: _Duration() for name in names}
        self._executions: dict[int, _Duration] = {}

    def executed(self, rows: int, ns: int) -> None:
        """The model ran once, over so many rows."""
        with self._lock:
            self._executions.setdefault(rows, _Duration()).add(ns)

    def answered(self, times: Times, done: int, failed: int) -> None:
        """Requests of one batch were answered, ``failed`` of them with an error."""
        if not done + failed:
            return
        with self._lock:
            self._last_s = self._wall_clock()
            self._requests["fail"].add(times.encoded - times.began, failed)
            for name, ns in times.parts().items():
                self._requests[name].add(ns, done)

    def to_dict(self) -> dict[str, Any]:
        """The counts, as an entry of ``model_stats`` has them."""
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
