"""Brings what is deployed of one function to what should run, one safe step after another.

Theory of operation
-------------------
Each round compares the wanted instances of each class with what the gateway lists and what the
instances themselves have announced, and returns the actions that are due. Missing instances are
started first. Surplus instances are removed only once all planned ones are ready and the front
sidecars follow a plan without them, so capacity never drops below what is needed. A class that
never becomes ready therefore displaces nothing: it is given up after a while, and tried again
later. Only if the gateway refuses the missing instances again and again, for lack of capacity or
because its limit of functions is reached, are instances removed that are not in the plan, one at a
time.

A failed action is repeated after a pause that doubles. If a count differs from the requested one
from the start, it is the gateway's limit; if it was right before, something else has changed it.
Either is reported, and corrected slowly enough not to fight another autoscaler.

Whatever carries the labels of the function and is not wanted is deleted, whatever has deployed it.
The state here only makes things quicker and clearer: a scaler that starts without it does the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from carpool.errors import ConfigError
from scaler.control.action import Action
from scaler.control.class_function import MADE_FROM_LABEL, class_function, name_of
from scaler.control.requested_replicas import PAUSE_S, RequestedReplicas

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.plan import InstanceClass
    from scaler.control.action import ObservedState
    from scaler.control.class_function import Status

__all__ = ["Reconciler"]

_PATIENCE_S = 120.0  # an instance that has not become ready by then is given up for a while
_REFUSALS = 2  # a single one may be chance
_SETTLE_S = 10.0  # fronts that are silent for this long are not waited for


class _Situation(NamedTuple):
    """What a function should have and what it has, in one round.

    Attributes:
        base: The function that the user calls.
        classes, wanted, observed, now_s: As for `Reconciler.step`.
    """

    base: Status
    classes: Mapping[str, InstanceClass]
    wanted: Mapping[str, int]
    observed: ObservedState
    now_s: float


class Reconciler:
    """Brings the deployed classes of one function to the wanted state.

    Args:
        function: Name of the function.
        patience_s: How long an instance may take to become ready.

    Attributes:
        notes: Problems, in sentences.
        awaited: Whether wanted instances are missing.
    """

    def __init__(self, function: str, patience_s: float = _PATIENCE_S) -> None:
        self._function = function
        self._patience_s = patience_s
        self._classes: dict[str, RequestedReplicas] = {}
        self._unsettled_s: float | None = None
        self.notes: list[str] = []
        self.awaited = False

    def step(
        self,
        classes: Mapping[str, InstanceClass],
        wanted: Mapping[str, int],
        observed: ObservedState,
        now_s: float,
    ) -> list[Action]:
        """Return the actions that are due.

        Args:
            classes: The plan's classes, by name.
            wanted: Wanted number of instances by class, including classes that are no longer in the
                plan.
            observed: Observed state.
            now_s: Seconds, on any axis.
        """
        if observed.base is None:
            return [
                Action("delete", class_name, status.name)
                for class_name, status in observed.deployed.items()
            ]
        for class_name in (*classes, *observed.deployed):
            self._classes.setdefault(class_name, RequestedReplicas())
        for class_name in self._classes.keys() - classes.keys() - observed.deployed.keys():
            del self._classes[class_name]
        for class_name, status in observed.deployed.items():
            self._classes[class_name].compare(status, min(now_s, observed.listed_s))
        situation = _Situation(observed.base, classes, wanted, observed, now_s)
        grown = self._grow(situation)
        self.awaited = self._awaits(situation)
        actions = grown + self._shrink(situation)
        self.notes = [
            f"{class_name}: {state.trouble}."
            for class_name, state in self._classes.items()
            if state.trouble
        ]
        return actions

    def succeeded(self, action: Action, now_s: float) -> None:
        """Record that the gateway has accepted ``action``."""
        state = self._classes.setdefault(action.class_name, RequestedReplicas())
        state.requested_s, state.seen, state.refusals, state.lasting = now_s, False, 0, False
        if action.verb == "scale":
            state.requested = action.replicas
        elif action.verb == "delete":
            state.requested = None

    def failed(
        self,
        action: Action,
        reason: str,
        now_s: float,
        *,
        refused: bool = True,
        lasting: bool = False,
    ) -> None:
        """Record a failure: ``refused`` as capacity is lacking, for good if ``lasting``, or not."""
        state = self._classes.setdefault(action.class_name, RequestedReplicas())
        state.failed(f"{action} failed: {reason}", now_s)
        state.refusals += refused
        state.cautious |= refused
        state.lasting = lasting

    @property
    def refused(self) -> list[str]:
        """Notes on refusals that waiting does not resolve."""
        states = self._classes.items()
        return [f"{name}: {state.trouble}." for name, state in states if state.lasting]

    def _grow(self, situation: _Situation) -> list[Action]:
        actions = []
        for name, instance_class in situation.classes.items():
            state, status = self._classes[name], situation.observed.deployed.get(name)
            if situation.now_s < state.free_s or not (status or situation.wanted.get(name)):
                continue
            try:
                action = self._due(state, status, instance_class, situation)
            except ConfigError as error:
                state.failed(str(error), situation.now_s)
                continue
            if action:
                actions.append(action)
        return actions

    def _due(
        self,
        state: RequestedReplicas,
        status: Status | None,
        instance_class: InstanceClass,
        situation: _Situation,
    ) -> Action | None:
        """Return the action that a class's function needs, without removing any instance."""
        now_s, count = situation.now_s, situation.wanted.get(instance_class.name, 0)
        document = class_function(situation.base, replace(instance_class, replicas=0))
        name = name_of(self._function, instance_class.name)
        if status is None:
            return Action("deploy", instance_class.name, name, document=document)
        made_from = document["labels"][MADE_FROM_LABEL]
        if status.labels.get(MADE_FROM_LABEL) != made_from:
            return Action("update", instance_class.name, name, document=document)
        most = status.replicas + 1 if state.cautious else state.limit(now_s)
        requested = min(count, most) if not state.given_up else status.replicas
        if status.replicas < requested and not state.is_pending(int(requested), now_s):
            return Action("scale", instance_class.name, name, replicas=int(requested))
        return None

    def _awaits(self, situation: _Situation) -> bool:
        """Return whether wanted instances are missing, giving up those that take too long."""
        _, classes, wanted, observed, now_s = situation
        missing = False
        for name in classes:
            state, ready = self._classes[name], observed.ready.get(name, 0)
            if ready >= wanted.get(name, 0):
                state.succeeded(now_s)
                continue
            missing = True
            state.lacking_s = now_s if state.lacking_s is None else state.lacking_s
            if now_s >= state.lacking_s + self._patience_s and name in observed.deployed:
                lack = f"{wanted[name] - ready} of {wanted[name]} instances are not ready"
                state.failed(f"{lack} after {self._patience_s:g} s", now_s)
                state.given_up, state.lacking_s = not state.given_up, now_s
        return missing

    def _shrink(self, situation: _Situation) -> list[Action]:
        """Return the removal of surplus, once nothing is missing and the fronts do without it."""
        observed, now_s = situation.observed, situation.now_s
        actions = [
            self._without_failures(name, observed)
            for name, state in self._classes.items()
            if state.given_up and name in observed.deployed and now_s >= state.free_s
        ]
        surplus = [
            action
            for name, status in observed.deployed.items()
            if now_s >= self._classes[name].free_s
            and (action := self._reduction(name, status, situation))
            and not self._classes[name].is_pending(action.replicas, now_s)
        ]
        if self.awaited and surplus and (freeing := self._freeing(surplus[0], observed, now_s)):
            actions.append(freeing)
        if self.awaited or not surplus:
            self._unsettled_s = None
        elif self._unsettled_s is None:
            self._unsettled_s = now_s  # fronts get the change in this round
        elif observed.settled or now_s >= self._unsettled_s + _SETTLE_S:
            actions += surplus
        return [action for action in actions if action]

    def _freeing(self, surplus: Action, observed: ObservedState, now_s: float) -> Action | None:
        """Remove one surplus instance if the gateway keeps refusing others, and retry those."""
        refused = [state for state in self._classes.values() if state.refusals >= _REFUSALS]
        if not refused:
            return None
        for state in refused:
            state.refusals, state.free_s, state.pause_s = _REFUSALS - 1, now_s, PAUSE_S
        left = observed.deployed[surplus.class_name].replicas - 1
        if surplus.verb == "delete" and left <= 0:
            return surplus
        return Action("scale", surplus.class_name, surplus.name, replicas=left)

    def _reduction(self, name: str, status: Status, situation: _Situation) -> Action | None:
        count = situation.wanted.get(name, 0)
        if name not in situation.classes and not count:
            return Action("delete", name, status.name)
        if status.replicas <= count:
            return None
        state = self._classes[name]
        if not count and state.trouble:  # for example a gateway that always keeps one replica
            return Action("delete", name, status.name)
        return Action("scale", name, status.name, replicas=count)

    def _without_failures(self, name: str, observed: ObservedState) -> Action | None:
        """Remove instances that do not become ready, as they only occupy capacity."""
        status, ready = observed.deployed[name], observed.ready.get(name, 0)
        if status.replicas <= ready:
            return None
        return Action("scale", name, status.name, replicas=ready)
