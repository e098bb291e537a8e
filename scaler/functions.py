"""The functions that are scaled, as both the sync API and the loop know them.

Everything here happens on the event loop, in no time: what takes time is the loop's. Which
functions there are, the gateway says; a function is scaled if its label names a scaling policy
other than ``fixed``.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from carpool.sync import SyncAnswer
from scaler.control.class_function import CLASS_LABEL, FUNCTION_LABEL
from scaler.control.controller import Controller
from scaler.control.sync_pace import FOLLOWED_S, SOON_S, Pace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from carpool.latency.variant_set import VariantSet
    from carpool.sync import Announcement, FrontReport
    from scaler.control.class_function import Status
    from scaler.control.dependencies import Dependencies

__all__ = ["Functions"]

_POLICY_LABEL = "com.carpool.scale.policy"
_NOT_SCALED = "fixed"
_CANARY_LABEL = "com.carpool.canary"
_S_PER_MINUTE = 60


class Functions:
    """All controls.

    Args:
        dependencies: What controllers are made with.
        pace: How often sidecars sync.

    Attributes:
        wake: Called when a round should not wait for its time.
        arrivals: By function, application and minute, since they were taken last.
        active: Whether anything may be told: not before the first round is over.
        listings: How many have changed which functions there are; the first one counts, too.
        ownerless: Classes of functions that the gateway does not list, by function and class.
        troubles: What is wrong with other sources, by source.
    """

    def __init__(self, dependencies: Dependencies, pace: Pace | None = None) -> None:
        self._dependencies = dependencies
        self._controls: dict[str, Controller] = {}
        self._sidecars = self._fronts = 0
        self.pace = pace or Pace()
        self.now = time.monotonic
        self.wall = time.time
        self.wake: Callable[[], None] = lambda: None
        self.arrivals: Counter[tuple[str, str, int]] = Counter()
        self.active = False
        self.listings = 0
        self.ownerless: dict[str, dict[str, Status]] = {}
        self.troubles: dict[str, str] = {}

    def __iter__(self) -> Iterator[Controller]:
        return iter(self._controls.values())

    def find(self, name: str) -> Controller | None:
        """The function of that name; an unknown one may be new, so a round is asked for."""
        controller = self._controls.get(name)
        if controller is None:
            self.wake()
        return controller

    @property
    def unlisted(self) -> str:
        """Why one that is not known may be there all the same; empty: it is not."""
        return "" if self.listings else "the gateway has not listed its functions yet; try again"

    def observe(self, listed: Mapping[str, Status]) -> list[Controller]:
        """The gateway lists these functions; the ones that are new here."""
        classes: dict[str, dict[str, Status]] = {}
        for status in listed.values():
            owner, class_name = status.labels.get(FUNCTION_LABEL), status.labels.get(CLASS_LABEL)
            if owner and class_name:
                classes.setdefault(owner, {})[class_name] = status
        divided = _divided(listed.values())
        new, before = [], set(self._controls)
        for status in listed.values():
            policy = status.labels.get(_POLICY_LABEL) or status.annotations.get(_POLICY_LABEL)
            scaled = FUNCTION_LABEL not in status.labels and (policy or _NOT_SCALED) != _NOT_SCALED
            if scaled and status.name not in self._controls:
                self._controls[status.name] = Controller(status, self._dependencies)
                new.append(self._controls[status.name])
        for name, controller in list(self._controls.items()):
            deployed = classes.pop(name, {})
            base = listed.get(name)
            controller.divided = name in divided
            controller.observe(base, deployed, self.now())
            if base is None and not deployed:
                del self._controls[name]
        if self._controls.keys() != before or not self.listings:
            self.listings += 1
        self.ownerless = {name: found for name, found in classes.items() if name not in listed}
        return new

    def learned(self, name: str, variants: VariantSet) -> None:
        """The model of a function has other variants than before."""
        self._dependencies = replace(
            self._dependencies, models={**(self._dependencies.models or {}), name: variants}
        )
        controller = self._controls.get(name)
        if controller is not None:
            controller.timing.given = variants
            listed = ", ".join(variant.name for variant in variants.variants)
            controller.decisions.add(f"its variants are {listed} from now on", self.wall())

    def announced(self, controller: Controller, said: Announcement) -> None:
        """An instance says how it is."""
        news = controller.reports.announced(said, self.now())
        if news and said.state != "loading":
            self.wake()

    def reported(self, controller: Controller, report: FrontReport) -> None:
        """A front says how it goes."""
        wall_s = self.wall()
        controller.reported(report, self.now(), wall_s)
        minute = int(wall_s) // _S_PER_MINUTE
        for app in report.apps:
            if app.arrivals:
                self.arrivals[controller.name, app.name, minute] += app.arrivals
        waits = report.starving and not controller.changing  # nothing is on its way yet
        if waits or self._surges(controller):
            self.wake()

    def answer(self, controller: Controller, report: FrontReport) -> SyncAnswer:
        """What the front that has reported this is told."""
        interval_s, config = self.interval_s(controller), controller.sidecar_config
        soonest_s = self.pace.soonest_s(self._fronts)
        if config.plan is None or not self.active or report.revision == config.revision:
            return SyncAnswer(
                interval_s,
                report.revision,
                conditions=controller.interference.conditions,
                soonest_s=soonest_s,
            )
        return SyncAnswer(
            interval_s,
            config.revision,
            config.plan,
            config.instances,
            controller.interference.conditions,
            soonest_s,
        )

    def interval_s(self, controller: Controller) -> float:
        """When a sidecar of a function should sync again."""
        usual_s = self.pace.interval_s(self._sidecars)
        controller.reports.interval_s = usual_s
        hurry = controller.changing or controller.plan is None or self._surges(controller)
        return min(usual_s, max(SOON_S, usual_s / 5)) if hurry else usual_s

    def count(self) -> int:
        """Count the sidecars again; how many there are."""
        now_s = self.now()
        self._sidecars = sum(len(controller.reports) for controller in self)
        self._fronts = sum(controller.reports.fronts(now_s) for controller in self)
        return self._sidecars

    def _surges(self, controller: Controller) -> bool:
        """Whether its rate has just jumped: each report tells more of it, and a plan may change."""
        return self.now() < controller.reports.surged_s + FOLLOWED_S


def _divided(listed: Iterable[Status]) -> set[str]:
    """Functions that have a share of the calls of one, and those whose calls are divided."""
    names = set()
    for status in listed:
        shares = status.labels.get(_CANARY_LABEL) or status.annotations.get(_CANARY_LABEL)
        if shares:
            names |= {status.name, *(part.partition("=")[0].strip() for part in shares.split(","))}
    return names
