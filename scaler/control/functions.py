"""The scaled functions, shared by the sync API and the loop.

Everything here runs on the event loop and returns at once; slow work is done by the loop. The
gateway lists the functions; a function is scaled if its label names a scaling policy other than
``fixed``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from carpool.settings import CANARY_LABEL
from carpool.sync import SyncAnswer
from scaler.control.class_function import CLASS_LABEL, FUNCTION_LABEL
from scaler.control.controller import Controller
from scaler.control.sync_pace import FOLLOWED_S, SOON_S, Pace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from carpool.sync import Announcement, FrontReport
    from carpool.variants.variant_set import VariantSet
    from scaler.control.class_function import Status
    from scaler.control.dependencies import Dependencies

__all__ = ["Functions"]

_POLICY_LABEL = "com.carpool.scale.policy"
_NOT_SCALED = "fixed"
_S_PER_MINUTE = 60


class Functions:
    """The controllers of all scaled functions.

    Args:
        dependencies: Dependencies of controllers.
        pace: How often sidecars sync.
        now: Returns the time, in seconds on a monotonic axis.
        wall: Returns the time, in seconds since 1970.

    Attributes:
        wake: Called when a round should start early.
        arrivals: Arrivals by function, application and minute, since they were last collected.
        active: Whether fronts may be given plans, which is false until the first round is over.
        listings: How often the set of functions has changed, including the first list.
        ownerless: Classes of functions that are gone or no longer scaled, by function and class.
        troubles: Problems of other sources, by source.
    """

    def __init__(
        self,
        dependencies: Dependencies,
        pace: Pace | None = None,
        *,
        now: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._dependencies = dependencies
        self._controllers: dict[str, Controller] = {}
        self._sidecars = self._fronts = 0
        self.pace = pace or Pace()
        self.now = now
        self.wall = wall
        self.wake: Callable[[], None] = lambda: None
        self.arrivals: Counter[tuple[str, str, int]] = Counter()
        self.active = False
        self.listings = 0
        self.ownerless: dict[str, dict[str, Status]] = {}
        self.troubles: dict[str, str] = {}

    def __iter__(self) -> Iterator[Controller]:
        return iter(self._controllers.values())

    def find(self, name: str) -> Controller | None:
        """Return the function of that name; if it is unknown, request a round, as it may be new."""
        controller = self._controllers.get(name)
        if controller is None:
            self.wake()
        return controller

    @property
    def unlisted(self) -> str:
        """Reason why an unknown function may exist nevertheless; empty if it cannot."""
        return "" if self.listings else "the gateway has not listed its functions yet; try again"

    def observe(self, listed: Mapping[str, Status]) -> list[Controller]:
        """Process the gateway's list of functions, and return those that are new."""
        classes: dict[str, dict[str, Status]] = {}
        for status in listed.values():
            owner, class_name = status.labels.get(FUNCTION_LABEL), status.labels.get(CLASS_LABEL)
            if owner and class_name:
                classes.setdefault(owner, {})[class_name] = status
        divided = _divided(listed.values())
        scaled = {name: status for name, status in listed.items() if _is_scaled(status)}
        new, before = [], set(self._controllers)
        for name, status in scaled.items():
            if name not in self._controllers:
                self._controllers[name] = Controller(status, self._dependencies)
                new.append(self._controllers[name])
        for name, controller in list(self._controllers.items()):
            deployed = classes.pop(name, {})
            base = scaled.get(name)
            controller.divided = name in divided
            controller.observe(base, deployed, self.now())
            if base is None and not deployed:
                del self._controllers[name]
        if self._controllers.keys() != before or not self.listings:
            self.listings += 1
        self.ownerless = classes
        return new

    def set_variants(self, name: str, variants: VariantSet) -> None:
        """Replace the variants in the model of a function."""
        self._dependencies = replace(
            self._dependencies, models={**(self._dependencies.models or {}), name: variants}
        )
        controller = self._controllers.get(name)
        if controller is not None:
            controller.latency_source.given = variants
            listed = ", ".join(variant.name for variant in variants.variants)
            controller.decisions.add(f"its variants are {listed} from now on", self.wall())

    def announced(self, controller: Controller, announcement: Announcement) -> None:
        """Process the announcement of an instance."""
        news = controller.reports.announced(announcement, self.now())
        if news and announcement.state != "loading":
            self.wake()

    def reported(self, controller: Controller, report: FrontReport) -> None:
        """Process the report of a front."""
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
        """Return the answer to the report of a front."""
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
        """Return the seconds after which a sidecar of a function should sync again."""
        usual_s = self.pace.interval_s(self._sidecars)
        controller.reports.interval_s = usual_s
        hurry = controller.changing or controller.plan is None or self._surges(controller)
        return min(usual_s, max(SOON_S, usual_s / 5)) if hurry else usual_s

    def count(self) -> int:
        """Count the sidecars again, and return their number."""
        now_s = self.now()
        self._sidecars = sum(len(controller.reports) for controller in self)
        self._fronts = sum(controller.reports.fronts(now_s) for controller in self)
        return self._sidecars

    def _surges(self, controller: Controller) -> bool:
        """Return whether the rate has just jumped, so that each report may change the plan."""
        return self.now() < controller.reports.surged_s + FOLLOWED_S


def _is_scaled(status: Status) -> bool:
    policy = status.labels.get(_POLICY_LABEL) or status.annotations.get(_POLICY_LABEL)
    return FUNCTION_LABEL not in status.labels and (policy or _NOT_SCALED) != _NOT_SCALED


def _divided(listed: Iterable[Status]) -> set[str]:
    """Return the functions whose calls are divided, and those that get a share of them."""
    names = set()
    for status in listed:
        shares = status.labels.get(CANARY_LABEL) or status.annotations.get(CANARY_LABEL)
        if shares:
            names |= {status.name, *(part.partition("=")[0].strip() for part in shares.split(","))}
    return names
