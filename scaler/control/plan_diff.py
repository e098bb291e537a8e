"""What changes from one plan of a function to the next, as numbers and in sentences.

Pure comparison: who carries a change out, and how, is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from carpool.plan import InstanceClass, Plan, Route

__all__ = ["Change", "changes", "explained"]

_MS_PER_S = 1000
_PERCENT = 100
_NOTICED = 0.005  # of a share; below it is rounded away


@dataclass(frozen=True, slots=True)
class Change:
    """Instances of one class that start or stop.

    Attributes:
        kind: The class, as it is after the change, or was before it is gone.
        start: How many more there are.
        stop: How many fewer.
    """

    kind: InstanceClass
    start: int = 0
    stop: int = 0

    def __str__(self) -> str:
        verb, count = ("Start", self.start) if self.start else ("Stop", self.stop)
        return f"{verb} {count} of {self.kind.name}: {_spelled(self.kind)}."


def changes(before: Plan | None, after: Plan) -> tuple[Change, ...]:
    """What starts, in the order of the plan, and then what stops.

    A class whose size is another one than before is another class, whatever its name; what is
    predicted of it is not part of its size.
    """
    old = {kind.name: kind for kind in before.classes} if before else {}
    starting: list[Change] = []
    stopping: list[Change] = []
    for kind in after.classes:
        was = old.pop(kind.name, None)
        there = was.replicas if was and _size(was) == _size(kind) else 0
        if was and not there and was.replicas:
            stopping.append(Change(was, stop=was.replicas))
        if kind.replicas > there:
            starting.append(Change(kind, start=kind.replicas - there))
        elif kind.replicas < there:
            stopping.append(Change(kind, stop=there - kind.replicas))
    stopping += [Change(kind, stop=kind.replicas) for kind in old.values() if kind.replicas]
    return (*starting, *stopping)


def explained(before: Plan | None, after: Plan) -> tuple[str, ...]:
    """Every change in a sentence, those of routes and windows too; none if nothing changes."""
    sentences = [str(change) for change in changes(before, after)]
    if before is None:
        return tuple(sentences)
    old = {route.app: route for route in before.routes}
    for route in after.routes:
        sentences += _rerouted(old.get(route.app), route)
    if (before.keep_alive_s, before.last_only) != (after.keep_alive_s, after.last_only):
        which = "The last idle instance stays" if after.last_only else "Idle instances stay"
        was, now = _kept(before.keep_alive_s), _kept(after.keep_alive_s)
        sentences.append(f"{which} {now} instead of {was}.")
    if before.prewarm_s != after.prewarm_s:
        sentences.append(
            f"Load again {after.prewarm_s:g} s after a release instead of {before.prewarm_s:g} s."
        )
    return tuple(sentences)


def _rerouted(before: Route | None, after: Route) -> Iterator[str]:
    who = "all others" if after.app == "*" else after.app
    if before is None:
        yield f"Requests of {who} have a route of their own."
        return
    names = sorted({*before.weights, *after.weights})
    for name in names:
        was, now = before.weights.get(name, 0.0), after.weights.get(name, 0.0)
        if abs(was - now) >= _NOTICED:
            share = f"{now * _PERCENT:.0f} % of the requests instead of {was * _PERCENT:.0f} %"
            yield f"{name} gets {share}, of {who}."
    if before.max_wait_s != after.max_wait_s:
        was_ms, now_ms = before.max_wait_s * _MS_PER_S, after.max_wait_s * _MS_PER_S
        yield f"A request of {who} waits at most {now_ms:.4g} ms instead of {was_ms:.4g} ms."


def _size(kind: InstanceClass) -> InstanceClass:
    return replace(kind, replicas=0, exec_s=None, rate_low=0.0, rate_high=None)


def _spelled(kind: InstanceClass) -> str:
    gpu = f" and {kind.gpu:.4g} % of a GPU" if kind.gpu else ""
    cores = "core" if kind.cpu == 1 else "cores"
    batches = "" if kind.batch_size == 1 else f", batches of up to {kind.batch_size}"
    return f"{kind.cpu:.4g} {cores}{gpu}{batches}"


def _kept(keep_alive_s: float | None) -> str:
    return "for good" if keep_alive_s is None else f"{keep_alive_s:g} s"
