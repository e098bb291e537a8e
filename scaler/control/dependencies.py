"""Common dependencies of the controllers of all functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from carpool.latency import LatencyModel
    from scaler.prewarm.contract import PrewarmPolicy

__all__ = ["Dependencies"]


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Dependencies that all controllers share.

    Attributes:
        term: Term of plans: higher at each start of a scaler than at any before.
        window_s: How far back arrivals are counted.
        patience_s: How long an instance may take to become ready.
        models: Configured latency models by function.
        prewarm: Factory of prewarm policies; None if functions follow their plans alone.
    """

    term: int = 0
    window_s: float = 10.0
    patience_s: float = 120.0
    models: Mapping[str, LatencyModel] | None = None
    prewarm: Callable[[], PrewarmPolicy] | None = None
