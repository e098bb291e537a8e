"""Break even: an instance is kept, or loaded ahead, as long as that is worth its idle time.

One number expresses the cost of a cold start: ``price_s``, in seconds of an idle instance. With G
the idle time, the windows from p to k have the mean cost

    E[(min(G, k) - p)+] + price (P(G < p) + P(G > k)) = price - (u(p) - u(k))
    where u(x) = E[min(G, x)] + price P(G > x)

so the best ones lie where u falls the most, and are found in one pass over the bins of the
histogram. At k the chance of a request per second has fallen below 1 / price; a prewarm window
appears by itself if requests cluster late, as with timers. Functions with one price exchange idle
time for cold starts at one rate, so no other windows would give fewer cold starts for their total
idle time.

Before anything is known, the prior probability that an idle time exceeds g is 1 / (1 + g / x), with
x = 5 % of the price. That breaks even at 95 % of the price: the keep-alive that costs at most twice
what would be paid with the future known (Karlin et al., Competitive Snoopy Caching, 1988). This
prior weighs as much as two idle times, so a few observations soon outweigh it.

Bins grow by 10 %: the precision of a window is relative, like the margins of the other policies.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from operator import add
from typing import TYPE_CHECKING, Any

from carpool.validation import rules
from carpool.validation.problems import Problems
from scaler.prewarm.contract import Windows
from scaler.prewarm.idle_bins import Bins
from scaler.prewarm.idle_histogram import IdleHistogram

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["BreakEven"]

_BELIEF_WEIGHT = 2.0
_BELIEF_SHARE = 0.05
_FIRST_SHARE = 0.01  # width of the first bin, as a share of the price
_RATIO = 1.1
_LEAST_RANGE_S = 86400.0
_RANGE_PRICES = 4.0  # even where the belief alone speaks, keeping longer never pays

_SCHEMA = rules.record({"histogram": rules.anything}, required=frozenset({"histogram"}))


class BreakEven:
    """The windows with the lowest total cost of idle time and cold starts."""

    @dataclass(frozen=True, slots=True)
    class Params:
        """Parameters of `BreakEven`.

        Attributes:
            price_s: cost of a cold start, in seconds of an idle instance.
            window_s: seconds after which an idle time is forgotten; null: never.
        """

        price_s: float = 600.0
        window_s: float | None = 86400.0

        def __post_init__(self) -> None:
            """Validate the parameters.

            Raises:
                ConfigError: The price or the window is not above 0 and finite.
            """
            problems = Problems()
            if not 0 < self.price_s < math.inf:
                problems.add("price_s", self.price_s, "seconds above 0")
            if self.window_s is not None and not 0 < self.window_s < math.inf:
                problems.add("window_s", self.window_s, "seconds above 0, or null")
            problems.raise_if_any()

    def __init__(self, params: Params) -> None:
        self._price_s = params.price_s
        range_s = max(_LEAST_RANGE_S, _RANGE_PRICES * params.price_s)
        bins = Bins.growing(_FIRST_SHARE * params.price_s, _RATIO, range_s)
        self._histogram = IdleHistogram(bins, params.window_s)
        self._belief = _belief(bins.edges_s, _BELIEF_SHARE * params.price_s)

    def observe(self, idle_s: float, now_s: float) -> None:
        """Count the idle time."""
        self._histogram.add(idle_s, now_s)

    def windows(self, now_s: float) -> Windows:
        """Return the cheapest windows for the observed idle times."""
        self._histogram.forget(now_s)
        weights = [*map(add, self._belief, self._histogram.counts)]
        return _cheapest(self._histogram.bins.edges_s, weights, self._price_s)

    def to_dict(self) -> dict[str, Any]:
        """Return the histogram."""
        return {"histogram": self._histogram.to_dict()}

    def absorb(self, data: Mapping[str, Any]) -> None:
        """See `PrewarmPolicy.absorb`."""
        rules.checked(_SCHEMA, data)
        self._histogram.merge(self._histogram.read(data["histogram"]))


def _belief(edges_s: Sequence[float], scale_s: float) -> list[float]:
    """Return the prior weight of each bin; the last is that beyond the bins."""
    exceeded = [_BELIEF_WEIGHT / (1 + edge_s / scale_s) for edge_s in edges_s]
    inside = [low - high for low, high in itertools.pairwise(exceeded)]
    return [*inside, exceeded[-1]]


def _cheapest(edges_s: Sequence[float], weights: Sequence[float], price_s: float) -> Windows:
    """Return the two edges between which u falls the most; idle times are uniform within a bin."""
    left = sum(weights)
    cost_s = highest_s = price_s * left  # u, and the largest so far
    fall_s = load_s = highest_at_s = release_s = lower_s = 0.0
    for edge_s, weight in zip(edges_s[1:], weights, strict=False):
        left -= weight
        cost_s += (left + weight / 2) * (edge_s - lower_s) - price_s * weight
        lower_s = edge_s
        if cost_s > highest_s:
            highest_s, highest_at_s = cost_s, edge_s
        elif highest_s - cost_s > fall_s:
            fall_s, load_s, release_s = highest_s - cost_s, highest_at_s, edge_s
    return Windows(load_s, release_s)
