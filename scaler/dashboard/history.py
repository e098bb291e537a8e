"""The recent history of one function for the page: one sample per second, up to a maximum number.

It takes readings of monotonic counters and returns rates, means and quantiles of the increases. The
time is passed in, and nothing here depends on the readers or on the source of the numbers.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from carpool.log_histogram import quantile_s

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from carpool.latency import Resources
    from carpool.scaling import Billing, Instances

__all__ = ["ENDED", "History", "Reading", "Sample", "has_grown"]

_WINDOW = 5  # samples that latencies and misses are taken over: one second has few requests
_MISSED = ("late", "failed", "expired", "refused")
ENDED = ("done", "failed", "expired", "refused")
_S_PER_HOUR = 3600.0
_DIGITS = 6

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Reading:
    """State of a function at one moment; counters are since the start.

    Attributes:
        rate_rps: Requests per second; None if unknown.
        queued: Requests waiting.
        instances: Number of instances by class.
        sizes: Resources of an instance, by class.
        batches, item_count, exec_s: Executed batches, their items and times, by class.
        outcomes: Requests by outcome.
        latency: Times from arrival to response, by bin.
        starts: Instances that have become ready.
        waits: How often a request had to wait for the first instance.
    """

    rate_rps: float | None = None
    queued: int = 0
    instances: Mapping[str, Instances] = field(default_factory=dict)
    sizes: Mapping[str, Resources] = field(default_factory=dict)
    batches: Mapping[str, int] = field(default_factory=dict)
    item_count: Mapping[str, int] = field(default_factory=dict)
    exec_s: Mapping[str, float] = field(default_factory=dict)
    outcomes: Mapping[str, int] = field(default_factory=dict)
    latency: Mapping[int, int] = field(default_factory=dict)
    starts: int = 0
    waits: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """One second, as shown on the page.

    Attributes:
        number: Grows by one from sample to sample.
        at_s: Seconds since the epoch.
        rate_rps, queued: As in the reading.
        classes: Ready and loading instances by class.
        cores, gpu_percent: Resources of all instances together.
        mean_batch: Items per batch; None without batches.
        p50_s, p99_s, miss_ratio: Over the latest seconds; None without requests.
        cost_per_hour: Cost at the rate of this second.
        starts, waits: Increases since the previous sample.
    """

    number: int
    at_s: float
    rate_rps: float | None
    queued: int
    classes: Mapping[str, tuple[int, int]]
    cores: float
    gpu_percent: float
    mean_batch: float | None
    p50_s: float | None
    p99_s: float | None
    miss_ratio: float | None
    cost_per_hour: float
    starts: int
    waits: int

    def to_dict(self) -> dict[str, Any]:
        """Return the sample for JSON, with rounded numbers."""
        values = ((name, getattr(self, name)) for name in _SHOWN)
        return {
            name: round(value, _DIGITS) if isinstance(value, float) else value
            for name, value in values
        }


_SHOWN = tuple(field.name for field in dataclasses.fields(Sample))


class History:
    """The samples of one function.

    Args:
        rule: What instances and executions cost.
        most: Maximum number of samples to keep.
    """

    def __init__(self, rule: Billing, most: int) -> None:
        self._rule = rule
        self._samples: deque[Sample] = deque(maxlen=most)
        self._readings: deque[Reading] = deque(maxlen=_WINDOW + 1)
        self._read_s = 0.0
        self.last = 0

    def keep(self, most: int) -> None:
        """Keep at most ``most`` samples from now on."""
        if most != self._samples.maxlen:
            self._samples = deque(self._samples, maxlen=most)

    def note(self, reading: Reading, now_s: float, wall_s: float) -> None:
        """Add a sample for this reading; the first reading only serves as a reference."""
        if self._readings and not has_grown(self._readings[-1], reading):
            self._readings.clear()  # it was removed and came back, and counts again
        if self._readings:
            self.last += 1
            self._samples.append(self._sample(reading, now_s - self._read_s, wall_s))
        self._readings.append(reading)
        self._read_s = now_s

    @property
    def first(self) -> int:
        """Number of the oldest sample that is kept."""
        return self.last - len(self._samples) + 1

    def after(self, number: int) -> list[Sample]:
        """Return the samples numbered above ``number``, oldest first."""
        return [sample for sample in self._samples if sample.number > number]

    def _sample(self, new: Reading, elapsed_s: float, wall_s: float) -> Sample:
        old, oldest = self._readings[-1], self._readings[-min(_WINDOW, len(self._readings))]
        batches = sum(new.batches.values()) - sum(old.batches.values())
        item_count = sum(new.item_count.values()) - sum(old.item_count.values())
        latency = Counter(new.latency)
        latency.subtract(oldest.latency)
        running = [(new.sizes[name], count) for name, count in _counts(new) if name in new.sizes]
        return Sample(
            self.last,
            wall_s,
            new.rate_rps,
            new.queued,
            {name: (replicas.ready, replicas.loading) for name, replicas in new.instances.items()},
            sum(size.cpu * count for size, count in running),
            sum(size.gpu * count for size, count in running),
            item_count / batches if batches else None,
            quantile_s(latency, 0.5),
            quantile_s(latency, 0.99),
            _miss_ratio(oldest.outcomes, new.outcomes),
            self._cost(old, new, elapsed_s) * _S_PER_HOUR,
            new.starts - old.starts,
            new.waits - old.waits,
        )

    def _cost(self, old: Reading, new: Reading, elapsed_s: float) -> float:
        """Return the cost per second between two readings."""
        if elapsed_s <= 0:
            return 0.0
        cost = sum(
            count * self._rule.lifetime(new.sizes[name], elapsed_s)
            for name, count in _counts(new)
            if name in new.sizes
        )
        for name, total in new.batches.items():
            batches = total - old.batches.get(name, 0)
            exec_s = new.exec_s.get(name, 0.0) - old.exec_s.get(name, 0.0)
            if batches and name in new.sizes:
                cost += batches * self._rule.execution(new.sizes[name], exec_s / batches)
        return cost / elapsed_s


def _counts(reading: Reading) -> Iterable[tuple[str, int]]:
    """Return the number of instances by class, including loading ones."""
    return [
        (name, replicas.ready + replicas.loading) for name, replicas in reading.instances.items()
    ]


def _miss_ratio(old: Mapping[str, int], new: Mapping[str, int]) -> float | None:
    ended, missed = (_more(old, new, names) for names in (ENDED, _MISSED))
    return min(1.0, missed / ended) if ended > 0 else None


def _more(old: Mapping[str, int], new: Mapping[str, int], names: Sequence[str]) -> int:
    return sum(new.get(name, 0) - old.get(name, 0) for name in names)


def has_grown(old: Reading, new: Reading) -> bool:
    """Return whether no counter has decreased."""
    return new.starts >= old.starts and all(
        (
            _holds(new.batches, old.batches),
            _holds(new.outcomes, old.outcomes),
            _holds(new.latency, old.latency),
        )
    )


def _holds(after: Mapping[K, int], before: Mapping[K, int]) -> bool:
    return all(after.get(key, 0) >= count for key, count in before.items())
