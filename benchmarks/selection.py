"""Measure how long it takes to find the variant for a request, among 10 to 10,000 of them.

``python -m benchmarks selection`` draws random demands, some of which no variant meets. In
`traded`, every variant is slower and more expensive than all that are less accurate, which is the
worst case for the index; in `drawn`, latency, accuracy and cost are independent. A change is an
instance that becomes Active. With ``--live`` the choices are those of a running front
(`benchmarks.selection_live`).

The published figure is 2.2 ms (INFaaS, ATC'21, for 22 architectures and 175 variants).
"""

from __future__ import annotations

import argparse
import random
import time
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.selection_live import measured_live
from carpool.variants.instance_states import State
from carpool.variants.selection import Profile, Requirements, Selection

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["main"]

_COUNTS = (10, 100, 1000, 10_000)
_CHANGES = 500
_US_PER_S = 1e6
_LIVE = f"{'':14}{'variants':>9}{'P50 us':>9}{'P99 us':>9}{'requests':>10}{'served':>10}\n"
_HEAD = f"{'':14}{'variants':>9}{'P50 us':>9}{'P99 us':>9}{'change P50 us':>15}{'P99 us':>9}\n"


def main(argv: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks selection", description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000, help="to be chosen for (20000)")
    parser.add_argument("--live", action="store_true", help="in a running front")
    flags = parser.parse_args(argv)
    measure = measured_live if flags.live else _measured
    print(_LIVE if flags.live else _HEAD, end="")
    for kind, draw in (("drawn", _drawn), ("traded", _traded)):
        for count in _COUNTS:
            print(measure(kind, draw, count, flags.requests), end="", flush=True)
    return 0


def _measured(
    kind: str, draw: Callable[[random.Random, str], Profile], count: int, requests: int
) -> str:
    chance = random.Random(count)
    profiles = [draw(chance, f"v{number}") for number in range(count)]
    selection = Selection(profiles)
    dearest = max(profile.cost for profile in profiles)
    changed = chance.sample(profiles, min(count // 2, _CHANGES))
    changes = _times([partial(selection.note, p.name, [State.ACTIVE]) for p in changed])
    asked = [
        Requirements(chance.uniform(0, 1.2), chance.random(), chance.uniform(0, dearest))
        for _ in range(requests)
    ]
    choices = _times([partial(selection.fits, each) for each in asked])
    figures = "".join(
        f"{times[int(share * (len(times) - 1))] * _US_PER_S:>{width}.1f}"
        for times, widths in ((choices, (9, 9)), (changes, (15, 9)))
        for share, width in zip((0.5, 0.99), widths, strict=True)
    )
    return f"{kind:14}{count:>9}{figures}\n"


def _times(calls: list[Callable[[], object]]) -> list[float]:
    times_s = []
    for call in calls:
        began = time.perf_counter()
        call()
        times_s.append(time.perf_counter() - began)
    return sorted(times_s)


def _drawn(chance: random.Random, name: str) -> Profile:
    return Profile(name, chance.random(), chance.random(), chance.random(), 3 * chance.random())


def _traded(chance: random.Random, name: str) -> Profile:
    accuracy = chance.random()
    return Profile(name, accuracy, 0.01 + accuracy, accuracy, 3 * chance.random())
