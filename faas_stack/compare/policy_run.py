"""Runs one policy on a running stack: warm up, replay the trace, count.

Every policy gets a newly started stack and the same requests at the same times, namely those of a
simulation of the scenario with the same seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import shlex
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carpool.plan import Plan
from faas_stack.compare.compare_outcomes import CompareOutcomes
from faas_stack.compare.initial_load import initial_load
from faas_stack.compare.observer import Observer
from faas_stack.interrupts import say
from faas_stack.load.generator import LoadGenerator, Target
from faas_stack.stack.refusals import InstancesRefused, RefusalCounter
from faas_stack.stack.stack_process import StackFailed, stack_process
from scaler.planning import cost
from sidecar.options import SCALER_SECRET
from simulator.arrivals import GeneratedArrivals
from simulator.reserved_cost import ReservedCost
from simulator.results import FunctionRecord, ScenarioResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler.scenarios.scenario import App, Function, Scenario

__all__ = ["PolicyRunner", "Request"]

_CONNECTIONS = 512
_TIMEOUT_S = 60.0
_CHECK_S = 2.0  # between two checks of the warm-up
_STEADY_S = 12.0  # slightly longer than the window of the rates
_PATIENCE_S = 120.0
_LAST_WORD_S = 1.5  # until the fronts have sent their reports


@dataclass(frozen=True, slots=True)
class Request:
    """Request to a function: ``POST /function/NAME`` followed by a path, and a body."""

    path: str = ""
    body: bytes = b""

    def to_bytes(self, host: str, function: str, app: str) -> bytes:
        """Return the request as bytes for a socket."""
        content_type = (
            "application/json" if self.body[:1] in (b"{", b"[") else "application/octet-stream"
        )
        head = (
            f"POST /function/{function}{self.path} HTTP/1.1\r\nhost: {host}\r\n"
            f"x-carpool-explain: 1\r\nx-carpool-app: {app}\r\n"
            f"content-type: {content_type}\r\ncontent-length: {len(self.body)}\r\n\r\n"
        )
        return head.encode() + self.body


class PolicyRunner:
    """Runs policies, one after another.

    Args:
        scenario: The functions and the arrivals.
        stack: The stack file.
        requests: The request to send to each function.
        options: Further options of ``carpool scaler run``.
        confined: Whether instances are limited to their sizes and to the capacity of this machine.
        steady_s: Seconds for which the instances must have been ready before the trace begins.
    """

    def __init__(
        self,
        scenario: Scenario,
        stack: Path,
        requests: Mapping[str, Request],
        options: Sequence[str],
        *,
        confined: bool,
        steady_s: float = _STEADY_S,
    ) -> None:
        self._scenario = scenario
        self._stack = stack
        self._requests = requests
        self._options = options
        self._partition = "on" if confined else "off"
        self._steady_s = steady_s

    def run(self, policy: str) -> ScenarioResult:
        """Return the result of the trace under ``policy``.

        Raises:
            StackFailed: If the stack does not start, does not become steady, or responds with
                errors.
        """
        with tempfile.TemporaryDirectory(prefix="carpool-compare-") as folder:
            options = [
                *("--policy", policy, "--scenario", str(self._scenario.path.resolve())),
                *("--store", str(Path(folder) / "scaler.db"), *self._options),
            ]
            say(f"{policy}: starting the stack")
            flags = ("--partition", self._partition, "--scaler", shlex.join(options))
            with stack_process(self._stack, *flags) as stack:
                run = _Run(self._scenario, self._requests, stack, self._token())
                return asyncio.run(run.outcome(policy, self._steady_s))

    def _token(self) -> str:
        return (self._stack.parent / ".secrets" / SCALER_SECRET).read_text().strip()


class _Run:
    """One policy's run on a running stack."""

    def __init__(
        self,
        scenario: Scenario,
        requests: Mapping[str, Request],
        endpoints: Mapping[str, Any],
        token: str,
    ) -> None:
        self._scenario = scenario
        self._requests = requests
        self._address = str(endpoints["url"]).removeprefix("http://")
        self._refusals = RefusalCounter()
        self._observer = Observer(endpoints["url"], endpoints["scaler"], token)

    async def outcome(self, policy: str, steady_s: float) -> ScenarioResult:
        """Warm up, replay the trace, and return the result."""
        scenario, observer = self._scenario, self._observer
        say(f"{policy}: warming up")
        await self._warm_up(steady_s)
        billing = cost.billing(scenario.prices)
        records = {
            function.name: FunctionRecord(
                function=function, reserved=ReservedCost(billing, scenario.horizon_s)
            )
            for function in scenario.functions
        }
        before = {name: await observer.function(name) for name in records}
        rounds, spent_s = await observer.planning()
        ledgers = await self._replay(policy, records)
        await asyncio.sleep(_LAST_WORD_S)
        for name, record in records.items():
            _settle(record, ledgers[name])
            await observer.bill(record, scenario.prices, before[name])
        more_rounds, more_s = await observer.planning()
        observer.close()
        planning_ms = 1000 * (more_s - spent_s) / max(1.0, more_rounds - rounds)
        return ScenarioResult(
            list(records.values()),
            [planning_ms],
            unplaced=observer.unplaced,
            priced=scenario.prices.given,
            start={name: _present(status) for name, status in before.items()},
        )

    async def _warm_up(self, steady_s: float) -> None:
        """Send the trace's initial load until the planned instances are ready and steady."""
        parts = [
            (
                app.arrivals.rate(0.0),
                self._target(function, app),
                CompareOutcomes(app.slo_s, app=app.name),
            )
            for function, app in self._apps()
        ]
        async with initial_load(parts) as load:
            await self._steady(steady_s, load, [ledger for _, _, ledger in parts])

    async def _steady(
        self, steady_s: float, load: asyncio.Future[Any], ledgers: Sequence[CompareOutcomes]
    ) -> None:
        """Wait until the planned instances have been ready for ``steady_s``.

        Raises:
            StackFailed: If they are not in time, or requests are answered with errors.
        """
        began_s = since_s = time.perf_counter()
        while time.perf_counter() - since_s < steady_s:
            await asyncio.sleep(_CHECK_S)
            if load.done():
                load.result()  # raises its error, if any
            _check(ledgers)
            now_s = time.perf_counter()
            wrong = await self._unsteady()
            if not any(wrong):
                continue
            since_s = now_s
            if now_s - began_s > _PATIENCE_S:
                reasons = "; ".join(filter(None, wrong))
                message = f"the instances are not all ready after {_PATIENCE_S:g} s: {reasons}"
                raise StackFailed(message)

    async def _unsteady(self) -> list[str]:
        """Return why each function is not ready for its trace yet. Empty texts if it is.

        Raises:
            StackFailed: If a function is refused its instances, so that waiting does not help.
        """
        statuses = {
            each.name: await self._observer.function(each.name) for each in self._scenario.functions
        }
        try:
            self._refusals.take(
                {
                    name: " ".join(one["refused"])
                    for name, one in statuses.items()
                    if one.get("refused")
                }
            )
        except InstancesRefused as error:
            raise StackFailed(str(error)) from error
        return [_not_ready(name, one) for name, one in statuses.items()]

    async def _replay(
        self, policy: str, records: Mapping[str, FunctionRecord]
    ) -> dict[str, list[CompareOutcomes]]:
        """Send the whole trace and return the outcomes by function."""
        scenario = self._scenario
        processes = [app.arrivals for _, app in self._apps()]
        drawn = GeneratedArrivals(processes, scenario.horizon_s, scenario.seed).take(
            scenario.horizon_s
        )
        ledgers: dict[str, list[CompareOutcomes]] = {name: [] for name in records}
        runs = []
        for (function, app), times in zip(self._apps(), drawn, strict=True):
            ledger = CompareOutcomes(app.slo_s, app=app.name)
            ledgers[function.name].append(ledger)
            target = self._target(function, app)
            runs.append(LoadGenerator(target, iter(times.tolist()), ledger).run())
        say(f"{policy}: {sum(map(len, drawn))} requests in {scenario.horizon_s:g} s")
        watching = asyncio.ensure_future(self._observer.follow(records, ledgers))
        progress = asyncio.ensure_future(_progress(policy, scenario.horizon_s))
        gc.collect()
        gc.disable()  # a collection would stall every request in flight
        try:
            await asyncio.gather(*runs, asyncio.sleep(scenario.horizon_s))
        finally:
            gc.enable()
            for task in (watching, progress):
                task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching  # raises its error, if any
        for warning in (
            w for each in ledgers.values() for ledger in each for w in ledger.warnings()
        ):
            say(f"{policy}: {warning}")
        return ledgers

    def _apps(self) -> list[tuple[Function, App]]:
        return [(function, app) for function in self._scenario.functions for app in function.apps]

    def _target(self, function: Function, app: App) -> Target:
        host, _, port = self._address.rpartition(":")
        request = self._requests.get(function.name, Request())
        whole = request.to_bytes(self._address, function.name, app.name)
        return Target(host, int(port), [whole], _CONNECTIONS, _TIMEOUT_S)


def _check(ledgers: Sequence[CompareOutcomes]) -> None:
    """Check that requests have not been answered with errors that more instances do not prevent.

    Raises:
        StackFailed: If one has.
    """
    errors = sum((ledger.errors for ledger in ledgers), Counter[str]())
    if wrong := [each for each in errors if each not in ("429", "503", "504", "502")]:
        message = f"requests are answered with {', '.join(wrong)}; check --data and --path"
        raise StackFailed(message)


def _present(status: Mapping[str, Any]) -> Plan:
    """Return the plan of a function with this status, with the instances that are ready."""
    plan, ready = Plan.from_dict(status["plan"]), status["instances"]
    classes = (replace(each, replicas=len(ready.get(each.name, ()))) for each in plan.classes)
    return replace(plan, classes=tuple(classes))


def _not_ready(name: str, status: Mapping[str, Any]) -> str:
    """Return why a function with this status is not ready yet. Empty if it is."""
    if status.get("refused"):
        return f"the instances of {name} are refused: {' '.join(status['refused'])}"
    if (status.get("plan") or {}).get("policy", "first") in ("first", "deployed"):
        return f"{name} has no plan of a policy"
    if status["ready"] < status["planned"] or status["loading"] or not status["fronts"]:
        notes = "".join(f"; {note}" for note in status["notes"])
        return f"{name} has {status['ready']} of {status['planned']} instances{notes}"
    return ""


def _settle(record: FunctionRecord, ledgers: Sequence[CompareOutcomes]) -> None:
    """Add the applications' requests to the function's record."""
    record.requests_by_app.clear()
    for ledger in ledgers:
        record.requests_by_app[ledger.app] += ledger.requests
        record.total.add(ledger.counts.settle())


async def _progress(policy: str, horizon_s: float) -> None:
    began_s = time.perf_counter()
    while True:
        await asyncio.sleep(10.0)
        say(f"{policy}: {time.perf_counter() - began_s:.0f} of {horizon_s:.0f} s")
