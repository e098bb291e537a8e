"""A ring buffer of the last batches, and why each closed, for operators.

Entries keep ids and figures, never a request's body, so that its size is bounded whatever callers
send.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.core.batch import Batch

__all__ = ["RecentBatches"]

SIZE = 1024  # batches remembered


class _Entry(NamedTuple):
    """One batch that came back; `RecentBatches.last` shows its fields."""

    ended_at: float
    plan_version: int | None
    batch: int
    part: bool
    attempt: int
    upstream: str
    instance_class: str
    closed: str
    outcome: str
    items: int
    sent: float
    expected_s: float
    exec_s: float
    requests: list[tuple[int, str, str, float]]


class RecentBatches:
    """Keeps the last batches.

    Args:
        wall_clock: seconds since the epoch.
    """

    def __init__(self, wall_clock: Callable[[], float]) -> None:
        self._entries: deque[_Entry] = deque(maxlen=SIZE)
        self._wall_clock = wall_clock

    def record(self, batch: Batch, outcome: str) -> None:
        """Record ``batch``, which has just come back: ``answered``, or how it failed."""
        requests = [(r.id, r.payload.call_id, r.app, r.arrived) for r in batch.requests]
        self._entries.append(
            _Entry(
                self._wall_clock(),
                batch.plan,
                batch.id,
                batch.split_from is not None,
                batch.attempt,
                batch.upstream.name,
                batch.instance_class,
                batch.close_reason.value,
                outcome,
                batch.item_count,
                batch.sent,
                batch.expected_s,
                batch.exec_s,
                requests,
            )
        )

    def last(self, count: int) -> list[dict[str, Any]]:
        """Return the last ``count`` batches for JSON, latest first."""
        return [_to_dict(entry) for entry in islice(reversed(self._entries), count)]


def _to_dict(entry: _Entry) -> dict[str, Any]:
    data = entry._asdict()
    sent, requests = data.pop("sent"), data.pop("requests")
    data["expected_s"] = entry.expected_s or None
    data["wait_s"] = max((sent - arrived for *_, arrived in requests), default=0.0)
    data["requests"] = [
        {"id": id, "call_id": call_id, "app": app, "wait_s": sent - arrived}
        for id, call_id, app, arrived in requests  # noqa: A001 - it is the request's id
    ]
    return data
