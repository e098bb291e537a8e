"""Find the cheapest instances that serve a rate: of one size, or of two sizes together.

The more instances there are, the more each can serve, because one of many is free sooner. In a mix
of two sizes, each instance is rated as if all were of its size. Mixes are tried for up to sixteen
instances, where one instance more or less matters; for more, one size suffices.

The laws of `capacity` are conservative, in part far below what instances can serve. So before a
rate is covered, `refine` replays up to sixteen instances of each size that would be cheaper at that
rate, unless replays at other rates have already shown whether they can serve it.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from scaler.policies.carpool.capacity import COUNTS, capacities, windows_s
from scaler.policies.carpool.replay import Queue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from carpool.scaling import Size
    from scaler.policies.carpool.options import Option

__all__ = ["Cover", "Menu"]

_FEW = 16
_BEHIND = 1.2  # capacity relative to the rate, if no instances serve it in time
_ROUNDING = 1e-9
_STEADY = 0.5  # part of the permitted misses for a steady load; the rest is for its changes


class Cover(NamedTuple):
    """A set of instances with its price.

    Attributes:
        price_per_s: Total price.
        instances: Number of instances of each size; its ``rate_rps`` is what one of them serves.
        wait_s: The longest that a request waits for its batch to fill.
    """

    price_per_s: float
    instances: Counter[Size]
    wait_s: float = 0.0


@dataclass(frozen=True, eq=False)
class Menu:
    """The options of a function with their capacities and prices.

    Attributes:
        options: Options, none of which is dominated in both price and capacity at every number.
        taken_rps: Requests per second that `COUNTS` instances are known to serve, shape (options,
            counts); `refine` raises it.
        failing_rps: Those that they are known not to serve, same shape; `refine` lowers it.
        price_per_s: Price of an instance, shape (options,).
        wait_s: The longest that a request waits for its batch to fill, shape (options,).
        objective: Latency objective, and the share of requests that may miss it.
        mixed: Whether two options may be combined.
    """

    options: tuple[Option, ...]
    taken_rps: npt.NDArray[np.float64]
    failing_rps: npt.NDArray[np.float64]
    price_per_s: npt.NDArray[np.float64]
    wait_s: npt.NDArray[np.float64]
    objective: tuple[float, float]
    mixed: bool = True

    @classmethod
    def of(
        cls,
        options: Sequence[Option],
        prices_per_s: Sequence[float],
        slo_s: float,
        miss: float,
        *,
        mixed: bool = True,
    ) -> Menu:
        """Return the menu of undominated options at these prices, with eager batches."""
        if not options:
            empty = np.zeros((0, len(COUNTS)))
            return cls((), empty, empty, np.zeros(0), np.zeros(0), (slo_s, miss), mixed)
        taken = capacities(options, slo_s, miss)
        wait_s = np.zeros(len(options))
        return cls._of_best(options, taken, prices_per_s, wait_s, (slo_s, miss), mixed=mixed)

    @classmethod
    def patient(
        cls,
        options: Sequence[Option],
        prices_per_s: Sequence[float],
        slo_s: float,
        miss: float,
    ) -> Menu | None:
        """Return the menu for patient batches, or None if no option batches.

        Each option has its own wait, so options are not mixed.
        """
        able = [at for at, option in enumerate(options) if option.size.batch > 1]
        if not able:
            return None
        batching = [options[at] for at in able]
        prices = [prices_per_s[at] for at in able]
        taken = capacities(batching, slo_s, miss, patient=True)
        wait_s = windows_s(batching, slo_s)
        return cls._of_best(batching, taken, prices, wait_s, (slo_s, miss), mixed=False)

    @classmethod
    def _of_best(
        cls,
        options: Sequence[Option],
        taken: npt.NDArray[np.float64],
        prices_per_s: Sequence[float],
        wait_s: npt.NDArray[np.float64],
        objective: tuple[float, float],
        *,
        mixed: bool,
    ) -> Menu:
        price = np.array(prices_per_s)
        kept = _undominated(taken, price)
        best = tuple(options[at] for at in kept)
        full = np.array([option.size.rate_rps for option in best])[:, None] * COUNTS
        return cls(best, taken[kept], full, price[kept], wait_s[kept], objective, mixed)

    @cached_property
    def at(self) -> Mapping[Size, int]:
        """Index of each size among the options."""
        return {option.size: at for at, option in enumerate(self.options)}

    def refine(self, rate_rps: float, among: Sequence[int], limit: float, most: int) -> int:
        """Raise capacities by replays, where that makes a cheaper cover of one size for a rate.

        Args:
            rate_rps: Requests per second.
            among: Indices of the options.
            limit: Maximum number of instances.
            most: Maximum number of replays.

        Returns:
            The number of replays; if less than ``most``, further ones would change nothing.
        """
        rate_rps, made = max(rate_rps, _ROUNDING), 0
        covers = {at: self._of_one(rate_rps, at, limit) for at in among}
        best = min([each.price_per_s for each in covers.values() if each], default=math.inf)
        per_request = {at: self.price_per_s[at] / self.options[at].size.rate_rps for at in among}
        for at in sorted(among, key=per_request.__getitem__):
            cover, price = covers[at], float(self.price_per_s[at])
            known = cover.instances.total() - 1 if cover else _FEW
            cheaper = math.ceil(best / price - _ROUNDING) - 1 if best < math.inf else _FEW
            count = int(min(known, cheaper, limit, _FEW))
            while count > 0 and made < most:
                made += self._replayed(at, count, rate_rps)
                if self.taken_rps[at, count - 1] < rate_rps:
                    break
                best = count * price
                count -= 1
        return made

    def _replayed(self, at: int, count: int, rate_rps: float) -> int:
        """Replay whether instances serve a rate, unless that is known; return how often."""
        taken, failing, place = self.taken_rps[at], self.failing_rps[at], count - 1
        if not taken[place] < rate_rps < failing[place]:
            return 0
        option, (slo_s, miss) = self.options[at], self.objective
        shape = (option.size.batch, option.single_s, option.item_s, float(self.wait_s[at]))
        if Queue(count, *shape, slo_s).holds(rate_rps, _STEADY * miss):
            taken[place] = rate_rps
            np.maximum.accumulate(taken, out=taken)
        else:
            failing[place] = rate_rps
        return 1

    def cover(self, rate_rps: float, among: Sequence[int], limit: float = math.inf) -> Cover | None:
        """Return the cheapest instances of the given options that serve a rate.

        Args:
            rate_rps: Requests per second.
            among: Indices of the options.
            limit: Maximum number of instances.

        Returns:
            None if they cannot serve the rate.
        """
        covers = [self._of_one(rate_rps, at, limit) for at in among]
        covers.append(self._of_two(rate_rps, np.array(among, dtype=int), limit))
        found = [each for each in covers if each]
        return self._rated(min(found, key=lambda c: c.price_per_s)) if found else None

    def nearly(self, rate_rps: float, limit: float) -> Cover:
        """Return the cheapest instances that keep up with a rate that none can serve in time."""
        sizes = [option.size for option in self.options]
        at = min(range(len(sizes)), key=lambda at: self.price_per_s[at] / sizes[at].rate_rps)
        count = max(1, math.ceil(_BEHIND * rate_rps / sizes[at].rate_rps))
        count = int(min(count, limit))
        return self._rated(Cover(count * float(self.price_per_s[at]), Counter({sizes[at]: count})))

    def taken_by(self, instances: Mapping[Size, int]) -> float:
        """Return the requests per second that these instances serve, ignoring unknown sizes."""
        known = {self.at[size]: n for size, n in instances.items() if size in self.at and n}
        count = sum(known.values())
        return sum([n * self.worth_rps(at, count) for at, n in known.items()])

    def _rated(self, cover: Cover) -> Cover:
        """Return a cover with each size's ``rate_rps`` set to what one of so many serves."""
        count = cover.instances.total()
        instances: Counter[Size] = Counter()
        for size, number in cover.instances.items():
            rate_rps = self.worth_rps(self.at[size], count)
            instances[replace(size, rate_rps=rate_rps) if rate_rps > 0 else size] = number
        return cover._replace(instances=instances)

    def worth_rps(self, at: int, count: int) -> float:
        """Return the requests per second that one of ``count`` instances of an option serves."""
        return float(np.interp(count, COUNTS, self.taken_rps[at] / COUNTS))

    def _of_one(self, rate_rps: float, at: int, limit: float) -> Cover | None:
        taken = self.taken_rps[at]
        rate_rps = max(rate_rps, _ROUNDING)  # not 0, which even useless instances would cover
        first = int(np.searchsorted(taken, rate_rps))  # number with at least this capacity
        if first < _FEW:
            count = first + 1
        elif first < len(taken):
            count = math.ceil(float(np.interp(rate_rps, taken, COUNTS)) - _ROUNDING)
        elif taken[-1] > 0:
            count = math.ceil(rate_rps * float(COUNTS[-1] / taken[-1]))
        else:
            return None
        if count > limit:
            return None
        price = count * float(self.price_per_s[at])
        return Cover(price, Counter({self.options[at].size: count}), float(self.wait_s[at]))

    def _of_two(self, rate_rps: float, among: npt.NDArray[np.int_], limit: float) -> Cover | None:
        """Return the cheapest mix of two sizes with two to sixteen instances in all."""
        few = int(min(_FEW, limit))
        if not self.mixed or few < 2 or len(among) < 2:  # noqa: PLR2004  two of two
            return None
        count = np.arange(2, few + 1)[:, None, None]
        served_rps = (self.taken_rps[among] / COUNTS)[:, 1:few].T
        first, second = served_rps[:, :, None], served_rps[:, None, :]
        price = self.price_per_s[among]
        gain = first - second
        with np.errstate(divide="ignore", invalid="ignore"):
            firsts = np.ceil((rate_rps - count * second) / gain - _ROUNDING)
        good = (gain > 0) & (firsts >= 1) & (firsts < count)
        if not good.any():
            return None
        firsts = np.where(good, firsts, 0)
        total = firsts * price[:, None] + (count - firsts) * price[None, :]
        best = np.unravel_index(np.argmin(np.where(good, total, math.inf)), total.shape)
        number, one, other = (int(place) for place in best)
        ones = int(firsts[number, one, other])
        sizes = [self.options[among[at]].size for at in (one, other)]
        instances = Counter({sizes[0]: ones, sizes[1]: number + 2 - ones})
        return Cover(float(total[number, one, other]), instances)


def _undominated(
    taken: npt.NDArray[np.float64], price: npt.NDArray[np.float64]
) -> npt.NDArray[np.int_]:
    """Return the indices of undominated options; of equal options, only the first."""
    as_good = (price[:, None] <= price[None, :]) & (taken[:, None] >= taken[None, :]).all(axis=2)
    before = np.triu(np.ones_like(as_good), 1)
    beaten = (as_good & (~as_good.T | before)).any(axis=0)
    useful = ~beaten & (taken[:, -1] > 0)
    return np.flatnonzero(useful if useful.any() else ~beaten)
