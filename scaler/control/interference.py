"""States of the instances of variants, from the measurements of all fronts: INFaaS's states, live.

Fronts report how many requests each instance has answered and how long its batches took. Once a
second, or every two reports where those are rarer, the sums over all fronts are compared with the
variant's profile (`carpool.variants.instance_states`): at its saturation rate an instance is
overloaded; slower than its profile and not overloaded, it is interfered with. Fronts learn of these
states and choose other instances. If a class has no other healthy instance, one more is requested,
wherever the platform has capacity, until the interference has been over for a while; if it has,
those take the load.

A profile is measured inside the handler, whereas a front also sees the network, so a few
milliseconds are allowed for that. If execution times that fronts have learned for a class exceed
its profile, they determine its saturation rate.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool.plain_number import plain
from carpool.variants.instance_states import InstanceState, State
from carpool.variants.variant_set import VariantSet, model_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.latency import LatencyModel
    from carpool.plan import InstanceClass
    from carpool.sync import FrontReport

__all__ = ["Baseline", "InterferenceMonitor"]

_EVERY_S = 1.0
_REPORTS = 2.0
_HOP_S = 0.005  # allowance for the network between front and handler
_REPLACED_S = 30.0  # how long an additional instance stays after the interference has ended


@dataclass(frozen=True, slots=True)
class Baseline:
    """Reference that the measurements of instances are compared with.

    Attributes:
        model: The variants; instances of any other model are not judged.
        classes: The classes, by name.
        ready: Addresses of the ready instances, by class.
        lines: Execution times learned by fronts, as base and per-item seconds, by class.
        interval_s: Seconds between two reports of a front.
    """

    model: LatencyModel | None
    classes: Mapping[str, InstanceClass]
    ready: Mapping[str, Sequence[str]]
    lines: Mapping[str, tuple[float, float]]
    interval_s: float = 0.0


@dataclass(slots=True)
class _Seen:
    """Work of one instance since the last look."""

    batches: int = 0
    item_count: int = 0
    exec_s: float = 0.0


class InterferenceMonitor:
    """Monitors the instances of one function."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._states: dict[str, tuple[str, InstanceState]] = {}
        self._looked_s: float | None = None
        self._replaced: dict[str, dict[str, float]] = {}

    def reported(self, report: FrontReport) -> None:
        """Record what a front reports of its instances."""
        for instance in report.instances:
            if instance.batches:
                seen = self._seen.setdefault(instance.address, _Seen())
                seen.batches += instance.batches
                seen.item_count += instance.item_count
                seen.exec_s += instance.exec_s

    def look(self, baseline: Baseline, now_s: float) -> list[str]:
        """Judge the instances once a period, and return changes as sentences."""
        if not isinstance(baseline.model, VariantSet):
            return []
        since_s, every_s = self._looked_s, _period_s(baseline.interval_s)
        if since_s is not None and now_s < since_s + every_s:
            return []
        self._looked_s, seen, self._seen = now_s, self._seen, {}
        period_s = now_s - since_s if since_s is not None else every_s
        there = {a: name for name, where in baseline.ready.items() for a in where}
        self._states = {a: s for a, s in self._states.items() if there.get(a) == s[0]}
        notes = []
        for address, name in there.items():
            if name in baseline.classes:
                previous = seen.get(address, _Seen())
                notes += self._judge(address, baseline, baseline.classes[name], previous, period_s)
        self._mitigate(now_s)
        return notes

    @property
    def conditions(self) -> dict[str, str]:
        """States of the instances that are not Active, by address."""
        return {
            address: state.state.value
            for address, (_, state) in sorted(self._states.items())
            if state.state is not State.ACTIVE
        }

    def more(self, wanted: Mapping[str, int], most: int | None) -> dict[str, int]:
        """Return the wanted instances of each class, plus those that interference requires."""
        counts = dict(wanted)
        for name, since in self._replaced.items():
            allowed = len(since) if most is None else max(0, most - sum(counts.values()))
            if counts.get(name):
                counts[name] += min(len(since), allowed)
        return counts

    def by_class(self) -> dict[str, Counter[str]]:
        """Return the number of instances in each state, by class."""
        states: dict[str, Counter[str]] = {}
        for name, state in self._states.values():
            states.setdefault(name, Counter())[state.state.value] += 1
        return states

    def _judge(
        self,
        address: str,
        baseline: Baseline,
        instance_class: InstanceClass,
        seen: _Seen,
        period_s: float,
    ) -> list[str]:
        """Observe one instance, and return a sentence if its state has changed."""
        assert baseline.model is not None  # noqa: S101  `look` has seen that
        known = self._states.get(address)
        if known is None:
            known = self._states[address] = (instance_class.name, InstanceState())
        state = known[1]
        before = state.state
        rate_rps = seen.item_count / period_s
        part = rate_rps / _saturation_rps(instance_class, baseline.lines.get(instance_class.name))
        times = _times(baseline.model, instance_class, seen)
        after = state.observe(part, times)
        if after is before:
            return []
        why = {
            State.OVERLOADED: f"it answers {plain(rate_rps)} requests/s, {part:.0%} of what it can",
            State.INTERFERED: f"its batches take {times or 0:.2f} times their profile",
        }.get(after, "that is over")
        fix = self._fix(known[0], after)
        return [f"{instance_class.name} at {address} is {after.value}: {why}.{fix}"]

    def _fix(self, name: str, state: State) -> str:
        """Return a sentence on what is done about a state; empty if nothing is."""
        if state is not State.INTERFERED:
            return ""
        if name in self._with_active():
            return " Others of its class take its load."
        return " No other instance of its class is healthy: another node is requested."

    def _mitigate(self, now_s: float) -> None:
        """Update the set of instances for which a replacement is requested.

        Of a class with Active instances, those take the load.
        """
        relieved = self._with_active()
        for address, (name, state) in self._states.items():
            kept = self._replaced.setdefault(name, {})
            if state.state is State.INTERFERED and (name not in relieved or address in kept):
                kept[address] = now_s
        for name, kept in list(self._replaced.items()):
            fresh = {a: at for a, at in kept.items() if now_s < at + _REPLACED_S}
            self._replaced[name] = fresh
            if not fresh:
                del self._replaced[name]

    def _with_active(self) -> set[str]:
        """Return the names of the classes that have an Active instance."""
        return {name for name, each in self._states.values() if each.state is State.ACTIVE}


def _period_s(interval_s: float) -> float:
    """Return the seconds between two looks; in fewer, some have a report and others none."""
    return _EVERY_S if interval_s <= _EVERY_S else _REPORTS * interval_s


def _saturation_rps(instance_class: InstanceClass, line: tuple[float, float] | None) -> float:
    """Return an instance's saturation rate, by its profile or learned times if that is less."""
    exec_s = (
        instance_class.exec_s or instance_class.batch_size / (instance_class.rate_high or 1.0)
    ) + _HOP_S
    if line is not None:
        exec_s = max(exec_s, line[0] + line[1] * instance_class.batch_size)
    return instance_class.batch_size / exec_s


def _times(model: LatencyModel, instance_class: InstanceClass, seen: _Seen) -> float | None:
    """Return the batches' execution time relative to the profile; None without batches."""
    if not seen.batches:
        return None
    batch = min(max(round(seen.item_count / seen.batches), 1), instance_class.batch_size)
    expected_s = model_of(model, instance_class.variant).predict(
        batch, instance_class.cpu, instance_class.gpu, 0.5
    )
    if not expected_s:
        return None
    return seen.exec_s / seen.batches / (expected_s + _HOP_S)
