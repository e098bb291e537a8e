"""Which instance takes the next batch.

Instances pull: one that is free takes a batch as soon as one may leave. Among free instances the
next batch goes to the one furthest behind its planned share (weighted deficit), which fills one
instance's batch before the next one's and keeps to the plan's proportions. Addresses and health
are given from outside; this file counts.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Upstream", "Upstreams"]


@dataclass(slots=True)
class Upstream:
    """One instance of the function.

    Attributes:
        name: unique; for a local handler, its address.
        batch_max: largest batch that it takes.
        weight: planned share of the requests, any positive unit.
        concurrency: batches that it may hold at once.
        in_flight: batches that it holds.
        up: whether it can take a batch at all.
        served: requests sent to it, divided by its weight.
    """

    name: str
    batch_max: int
    weight: float = 1.0
    concurrency: int = 1
    in_flight: int = 0
    up: bool = False
    served: float = 0.0

    @property
    def free(self) -> bool:
        """Whether it can take a batch now."""
        return self.up and self.in_flight < self.concurrency


class Upstreams:
    """The instances of one function."""

    __slots__ = ("_by_name",)

    def __init__(self) -> None:
        self._by_name: dict[str, Upstream] = {}

    def add(self, upstream: Upstream) -> None:
        """Add an instance, or replace the one of that name; it starts with the others' share."""
        others = [other.served for other in self._by_name.values() if other.name != upstream.name]
        upstream.served = min(others, default=0.0)
        self._by_name[upstream.name] = upstream

    def next_free(self) -> Upstream | None:
        """The free instance furthest behind its share, or None."""
        chosen: Upstream | None = None
        for upstream in self._by_name.values():
            if upstream.free and (chosen is None or upstream.served < chosen.served):
                chosen = upstream
        return chosen

    @property
    def up(self) -> int:
        """How many instances can take batches at all."""
        return sum([upstream.up for upstream in self._by_name.values()])

    def sent(self, upstream: Upstream, size: int) -> None:
        """Count a batch that ``upstream`` has just taken."""
        upstream.in_flight += 1
        upstream.served += size / upstream.weight
