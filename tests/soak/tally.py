"""Counts of what the clients saw, and their comparison with all measurements."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tests.soak.asked import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.soak.asked import Answer, Asked

__all__ = ["GROWTH_MAX_MIB", "Memory", "Tally", "counted", "flat"]

_SHOWN = 20

# Over a third of 300 000 requests this is 84 bytes for each: less than the smallest object that
# stands for one, and a tenth of one with its headers and body. Below it lies what comes and goes:
# large bodies on their way, and cycles that wait for the collector.
GROWTH_MAX_MIB = 8.0
_HELD_FOR_ONE_BYTES = 4096  # the request for the metrics itself


class Memory(NamedTuple):
    """The sidecar's memory after a number of requests have ended."""

    asked: int
    mib: float


@dataclass(slots=True)
class Tally:
    """Counts of one run.

    Attributes:
        answers: Answers by kind of request and status.
        left: Clients that left after they had sent their whole request.
        cut_off: Clients that left within their request.
        violations: Number of expectations that were not met.
        shown: The first of them, in words.
    """

    answers: Counter[tuple[Kind, int]] = field(default_factory=Counter)
    left: int = 0
    cut_off: int = 0
    violations: int = 0
    shown: list[str] = field(default_factory=list)

    @property
    def asked(self) -> int:
        """Number of requests that have ended."""
        return self.answers.total() + self.left + self.cut_off

    def answered(self, asked: Asked, answer: Answer | None) -> None:
        """Count an answer, or a client that has not waited for it."""
        if answer is None:
            self.left += asked.kind is Kind.LEAVING
            self.cut_off += asked.kind is Kind.CUT_OFF
            return
        self.answers[asked.kind, answer.status] += 1
        objection = asked.objection(answer)
        if objection:
            self.violated(f"{asked.mark} ({asked.kind.value}): {objection}")

    def violated(self, *texts: str) -> None:
        """Count expectations that were not met."""
        self.violations += len(texts)
        self.shown += texts[: max(0, _SHOWN - len(self.shown))]

    def with_status(self, *statuses: int) -> int:
        """Return the number of answers with one of these statuses."""
        return sum(count for (_, status), count in self.answers.items() if status in statuses)


def counted(tally: Tally, metrics: Mapping[str, float]) -> list[str]:
    """Return where the sidecar's counters differ from each other or from what the clients saw.

    Only the outcome of requests whose clients left is unknown: the sidecar answered some of them
    before it noticed. All were good, so those are done and the others cancelled. Requests that were
    parked unparsed are not counted at all, nor are those of clients that left within their request.
    """

    def ended(state: str) -> float:
        return metrics.get(f'batch_requests_total{{state="{state}"}}', 0)

    def total(name: str) -> float:
        return sum(value for key, value in metrics.items() if key.startswith(f"{name}{{"))

    stale = tally.answers[Kind.STALE, 504]
    refused = stale + tally.with_status(503)
    cancelled = ended("cancelled")
    closed = total("batch_closed_total")
    came_back = metrics["batch_execution_seconds_count"] + metrics["batch_broken_total"]
    equal = {
        "failed": (tally.with_status(502), ended("failed")),
        "expired": (tally.with_status(504) - stale, ended("expired")),
        "refused": (refused, ended("refused")),
        "refused, by reason": (refused, total("batch_refusals_total")),
        "batches that came back": (closed, came_back),
        "batches by size": (closed, metrics["batch_size_count"]),
        "policies replaced": (0, metrics["batch_policy_fallback_total"]),
        "waiting at the end": (0, metrics["batch_queue_requests"]),
        "in flight at the end": (0, metrics["batch_in_flight"]),
    }
    wrong = [
        f"{name}: expected {expected:g}, the sidecar counted {actual:g}"
        for name, (expected, actual) in equal.items()
        if expected != actual
    ]
    done, answered = ended("done"), tally.with_status(200, 422)
    if not answered <= done <= answered + tally.left - cancelled:
        most = answered + tally.left - cancelled
        wrong.append(f"done: expected {answered:g} to {most:g}, the sidecar counted {done:g}")
    held_bytes = metrics["batch_held_bytes"]
    if held_bytes > _HELD_FOR_ONE_BYTES:
        wrong.append(f"{held_bytes:g} bytes held at the end, when there was no other client")
    if not 0 <= cancelled <= tally.left:
        wrong.append(f"cancelled: expected at most {tally.left}, the sidecar counted {cancelled:g}")
    return wrong


def flat(samples: Sequence[Memory], requests: int) -> tuple[float, list[str]]:
    """Return by how many MiB memory grew from the second third to the last, and objections.

    The minimum of each third is compared: temporary memory raises the others, a leak raises all.
    """
    then = [s.mib for s in samples if requests <= 3 * s.asked < 2 * requests]
    now = [s.mib for s in samples if 3 * s.asked >= 2 * requests]
    if not (then and now):
        return 0.0, ["too few samples to tell whether memory is flat"]
    growth_mib = min(now) - min(then)
    if growth_mib <= GROWTH_MAX_MIB:
        return growth_mib, []
    text = f"memory grew by {growth_mib:.1f} MiB: expected {GROWTH_MAX_MIB:g} at most"
    return growth_mib, [text]
