"""The difference of two plans of a function, as numbers and in sentences.

Pure comparison; how a change is carried out is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from carpool.plan import InstanceClass, Plan, Route

__all__ = ["Change", "changes", "explained"]

_MS_PER_S = 1000
_PERCENT = 100
_NOTICED = 0.005  # smaller changes of a share would not show, as shares are rounded


@dataclass(frozen=True, slots=True)
class Change:
    """Instances of one class that start or stop.

    Attributes:
        instance_class: The class after the change, or before it if it is removed.
        start: Number of instances that start.
        stop: Number of instances that stop.
    """

    instance_class: InstanceClass
    start: int = 0
    stop: int = 0

    def __str__(self) -> str:
        verb, count = ("Start", self.start) if self.start else ("Stop", self.stop)
        return f"{verb} {count} of {self.instance_class.name}: {_described(self.instance_class)}."


def changes(before: Plan | None, after: Plan) -> tuple[Change, ...]:
    """Return the instances that start, in the order of the plan, and then those that stop.

    A class whose size has changed counts as another class, whatever its name; predictions are not
    part of its size.
    """
    old = (
        {instance_class.name: instance_class for instance_class in before.classes} if before else {}
    )
    starting: list[Change] = []
    stopping: list[Change] = []
    for instance_class in after.classes:
        was = old.pop(instance_class.name, None)
        there = was.replicas if was and was.size == instance_class.size else 0
        if was and not there and was.replicas:
            stopping.append(Change(was, stop=was.replicas))
        if instance_class.replicas > there:
            starting.append(Change(instance_class, start=instance_class.replicas - there))
        elif instance_class.replicas < there:
            stopping.append(Change(instance_class, stop=there - instance_class.replicas))
    stopping += [
        Change(instance_class, stop=instance_class.replicas)
        for instance_class in old.values()
        if instance_class.replicas
    ]
    return (*starting, *stopping)


def explained(before: Plan | None, after: Plan) -> tuple[str, ...]:
    """Return a sentence for each change, including routes and windows; empty without changes."""
    sentences = [str(change) for change in changes(before, after)]
    if before is None:
        return tuple(sentences)
    old = {route.app: route for route in before.routes}
    for route in after.routes:
        sentences += _rerouted(old.get(route.app), route, alone=len(after.routes) == 1)
    if (before.keep_alive_s, before.last_only) != (after.keep_alive_s, after.last_only):
        which = "The last idle instance stays" if after.last_only else "Idle instances stay"
        was, now = _kept(before.keep_alive_s), _kept(after.keep_alive_s)
        sentences.append(f"{which} {now} instead of {was}.")
    if before.prewarm_s != after.prewarm_s:
        sentences.append(
            f"An instance is loaded again {after.prewarm_s:g} s after a release instead of "
            f"{before.prewarm_s:g} s."
        )
    return tuple(sentences)


def _rerouted(before: Route | None, after: Route, *, alone: bool) -> Iterator[str]:
    rest = "all applications" if alone else "all other applications"
    callers = rest if after.app == "*" else after.app
    if before is None:
        yield f"Requests of {callers} get a route of their own."
        return
    names = sorted({*before.weights, *after.weights})
    for name in names:
        was, now = before.weights.get(name, 0.0), after.weights.get(name, 0.0)
        if abs(was - now) >= _NOTICED:
            share = f"{now * _PERCENT:.0f} % instead of {was * _PERCENT:.0f} %"
            yield f"{name} gets {share} of the requests of {callers}."
    if before.max_wait_s != after.max_wait_s:
        was_ms, now_ms = before.max_wait_s * _MS_PER_S, after.max_wait_s * _MS_PER_S
        waits = f"{now_ms:.4g} ms instead of {was_ms:.4g} ms"
        yield f"Requests of {callers} wait at most {waits}."


def _described(instance_class: InstanceClass) -> str:
    gpu = f" and {instance_class.gpu:.4g} % of a GPU" if instance_class.gpu else ""
    cores = "core" if instance_class.cpu == 1 else "cores"
    batches = (
        "" if instance_class.batch_size == 1 else f", batches of up to {instance_class.batch_size}"
    )
    return f"{instance_class.cpu:.4g} {cores}{gpu}{batches}"


def _kept(keep_alive_s: float | None) -> str:
    return "permanently" if keep_alive_s is None else f"{keep_alive_s:g} s"
