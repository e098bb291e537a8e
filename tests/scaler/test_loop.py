"""Rounds against a real provider: instances follow the plan, which survives a restart."""

from __future__ import annotations

import asyncio
import logging
import resource
import threading
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from carpool.sync import Announcement, AppReport, FrontReport
from scaler.control.dependencies import Dependencies
from scaler.control.functions import Functions
from scaler.control.guard import Guard
from scaler.control.message_order import MessageOrder
from scaler.control.shadow_policy import Shadow
from scaler.live_planner import Planner, PlannerSettings
from scaler.loop import Loop
from scaler.metrics import Metrics
from scaler.openfaas_client import CALLS, GatewayClient
from scaler.persistence import Persistence
from scaler.planning.cost import Prices
from scaler.policies.fixed import Fixed
from scaler.policy_choice import chosen_policy
from scaler.scenarios.scenario_file import read_scenario
from scaler.store import Store
from tests.faas_stack.rig import ProcessStage, story
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from carpool.scaling import ClusterView, FunctionLoad
    from scaler.control.controller import Controller
    from tests.faas_stack.rig import Rig

SCENARIO = """\
cluster: {nodes: [{name: here, cpus: 1.5}]}
models: {toy: {linear: {base_ms: 20, per_item_ms: 2, cpu: 0.5}}}
functions:
  - name: echo
    model: toy
    slo_ms: 200
    max_batch: 4
    apps: [{name: a, arrivals: {poisson: {rate: 1}}}]
"""
LABELS = {
    "com.carpool.slo": "200ms",
    "com.carpool.batch.max": "4",
    "com.carpool.scale.policy": "infless",
    "com.carpool.scale.min": "1",
}


class _Told(logging.Handler):
    """Log handler that records messages."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        """Record the message, as `logging.Handler.emit`."""
        self._lines.append(record.getMessage())


class Scaler:
    """A scaler with the test in place of its sidecars."""

    def __init__(
        self, functions: Functions, metrics: Metrics, planner: Planner, loop: Loop
    ) -> None:
        self.functions = functions
        self.metrics = metrics
        self.planner = planner
        self.loop = loop
        self._spoken = 0
        self.arrivals = 0
        self.told: list[str] = []

    @property
    def controller(self) -> Controller:
        """Controller of the function ``echo``."""
        (found,) = self.functions
        return found

    def load(self, rate_rps: int) -> None:
        """Report one second of this load as a front does."""
        self._spoken += 1
        self.arrivals += rate_rps
        sidecar_config = self.controller.sidecar_config
        report = FrontReport(
            *("echo", "a" * 8, self._spoken),
            version=sidecar_config.version or None,
            period_s=1.0,
            apps=(AppReport("*", rate_rps),),
        )
        self.functions.reported(self.controller, report)

    def announce(self, kind: str, count: int) -> None:
        """Announce ``count`` instances of a class as ready."""
        for number in range(count):
            said = Announcement("echo", f"i{number:07}", 1, kind, f"{kind}:{number}", "ready", 1.0)
            self.functions.announced(self.controller, said)


@asynccontextmanager
async def scaler(
    rig: Rig, *, dry: bool = False, shadow: str = "", url: str = "", servers: bool = True
) -> AsyncIterator[Scaler]:
    """Run a scaler's rounds, with the store in the rig's folder."""
    path = rig.folder / "scenario.yaml"
    path.write_text(SCENARIO)
    scenario = read_scenario(path)
    functions = Functions(
        Dependencies(models={"echo": scenario.functions[0].model}),
        now=time.monotonic,
        wall=time.time,
    )
    metrics, senders = Metrics(lambda: list(functions), functions.now), MessageOrder()
    setting = PlannerSettings(Prices(), scenario.nodes if servers else ())
    cast = Shadow(shadow, Guard(chosen_policy(shadow, {}))) if shadow else None
    planner = Planner(setting, cast)
    store = Store(rig.folder / "scaler.db")
    gateway = GatewayClient(url or f"http://{rig.provider.address}", dry=dry)
    loop = Loop(functions, gateway, planner, Persistence(store, functions, senders), metrics)
    task = asyncio.get_running_loop().create_task(loop.run(0.05))
    running = Scaler(functions, metrics, planner, loop)
    told, log = _Told(running.told), logging.getLogger("scaler.loop")
    log.addHandler(told)
    try:
        await wait_until_async(lambda: metrics.rounds > 1, what="rounds")
        yield running
    finally:
        log.removeHandler(told)
        task.cancel()
        await asyncio.wait([task])
        store.close()
        gateway.close()


def replicas(rig: Rig) -> dict[str, int]:
    """Return the replicas that the provider was asked to run, by function."""
    found = rig.orchestrator.all()
    return {function.deployment.service: function.replicas for function in found}


@story(ProcessStage())
async def test_instances_follow_load_and_survive_scaler_restart(rig: Rig) -> None:
    """There is one instance at first and more under load; a restarted scaler changes nothing."""
    await rig.deploy("echo", labels=LABELS)
    async with scaler(rig, shadow="openfaas") as running:
        await wait_until_async(lambda: len(replicas(rig)) == 2, what="a class")
        (kind,) = running.controller.wanted
        assert {"echo": 1, f"echo--{kind}": 1} == replicas(rig)
        running.announce(kind, 1)

        def crowded() -> bool:
            running.load(10_000)
            return running.controller.unplaced_rps > 0 and sum(replicas(rig).values()) == 1 + 3

        await wait_until_async(crowded, what="as many as there is room for")
        assert running.planner.shadow is not None
        assert "echo" in running.planner.shadow.plans
        plan, deployed, arrivals = running.controller.plan, replicas(rig), running.arrivals
        assert ("deploy", "done") in running.metrics.actions
        assert b"scaler_instances" in running.metrics.render()
    async with scaler(rig) as running:
        await wait_until_async(lambda: running.metrics.rounds > 5)
        assert (plan, deployed) == (running.controller.plan, replicas(rig))
        assert arrivals == sum(count for *_, count in _arrivals(rig))


@story(ProcessStage())
async def test_a_dry_run_changes_nothing(rig: Rig) -> None:
    """A dry run makes a plan, but deploys nothing and sends nothing to fronts."""
    await rig.deploy("echo", labels=LABELS)
    async with scaler(rig, dry=True) as running:
        await wait_until_async(lambda: running.metrics.rounds > 5)
        assert running.controller.plan is not None
        assert {"echo": 1} == replicas(rig)
        assert not running.functions.active
        assert {} == dict(running.metrics.actions)


@story(ProcessStage())
async def test_gateway_calls_run_concurrently_up_to_limit(rig: Rig) -> None:
    """Calls of the gateway run concurrently up to a limit, and results are in order."""
    async with scaler(rig) as running:
        together = threading.Barrier(CALLS)

        async def change(number: int) -> int:
            await running.loop.call(lambda: together.wait(HANG_S))
            return number

        assert [*range(2 * CALLS)] == await running.loop.each(range(2 * CALLS), change)


@story(ProcessStage())
async def test_functions_that_are_not_to_be_scaled_are_left_alone(rig: Rig) -> None:
    """The scaler ignores functions without the label of a scaling policy."""
    await rig.deploy("plain")
    await rig.deploy("fixed", labels={"com.carpool.scale.policy": "fixed"})
    async with scaler(rig) as running:
        await wait_until_async(lambda: running.metrics.rounds > 5)
        assert [] == list(running.functions)
        assert {"plain": 1, "fixed": 1} == replicas(rig)


@story(ProcessStage())
async def test_unusable_policy_is_named_in_notes(rig: Rig) -> None:
    """The notes of a function name its misspelt policy and the reason."""
    labels = {**LABELS, "com.carpool.scale.policy": "infles"}
    await rig.deploy("echo", labels=labels)
    async with scaler(rig) as running:
        await wait_until_async(lambda: running.controller.notes)
        (note,) = running.controller.notes
        assert note.startswith("its policy infles cannot be used: ")
        assert "did you mean 'infless'" in note


class Moody(Fixed):
    """Policy that plans or fails, as the test sets it."""

    wrong = ""

    def propose(self, loads: Sequence[FunctionLoad], cluster: ClusterView) -> Any:
        """Return proposals as `ScalePolicy.propose`, or fail."""
        if Moody.wrong == "raises":
            return len(loads) / 0
        proposals = super().propose(loads, cluster)
        return {"": proposals, "answers": "hello", "of none": {"echo": 3}}[Moody.wrong]


@pytest.mark.slow
@story(ProcessStage())
async def test_failing_policy_is_reported_until_it_recovers(rig: Rig) -> None:
    """The failure is in the function's notes and once in the log, and instances keep running."""
    name = f"{__name__}:Moody"
    await rig.deploy("echo", labels={**LABELS, "com.carpool.scale.policy": name})
    async with scaler(rig) as running:
        lines = running.told
        await wait_until_async(lambda: len(replicas(rig)) == 2, what="a class")
        (kind,) = running.controller.wanted
        running.announce(kind, 1)
        for wrong, said in (
            ("raises", "ZeroDivisionError: division by zero (test_loop.py:"),
            ("answers", "propose() returned 'hello', not a mapping of functions to Proposals"),
            ("of none", "it proposes 3, which is not a Proposal"),
        ):
            Moody.wrong = wrong
            expected = f"its policy {name} fails: "
            await wait_until_async(
                lambda: any(said in note for note in running.controller.notes),  # noqa: B023
                what=said,
            )
            (note,) = running.controller.notes
            assert expected in note
            rounds = running.metrics.rounds
            await wait_until_async(lambda: running.metrics.rounds > rounds + 3)  # noqa: B023
            assert 1 == sum(said in line for line in lines)
            assert any(line.startswith(f"echo: {expected}") for line in lines)
            assert {"echo": 1, f"echo--{kind}": 1} == replicas(rig)
        Moody.wrong = ""
        await wait_until_async(lambda: not running.controller.notes, what="well again")
        assert "echo: is planned" in lines


@pytest.mark.slow
@story(ProcessStage())
async def test_full_store_is_reported_and_written_when_room_returns(rig: Rig) -> None:
    """A full disk is logged once, rounds continue, and everything is stored when there is room."""
    await rig.deploy("echo", labels=LABELS)
    async with scaler(rig) as running:
        await wait_until_async(lambda: len(replicas(rig)) == 2, what="a class")
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        try:
            running.load(7)
            await wait_until_async(lambda: running.loop.store_error, what="told")
            rounds = running.metrics.rounds
            await wait_until_async(lambda: running.metrics.rounds > rounds + 3)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        await wait_until_async(lambda: not running.loop.store_error, what="room again")
        assert 1 == sum("is not saved for a restart" in line for line in running.told)
        assert "a round failed" not in running.told
        assert "the store can be written again" in running.told
        kept = Store(rig.folder / "scaler.db")
        assert running.arrivals == sum(count for *_, count in kept.counts("echo"))
        kept.close()


@story(ProcessStage())
async def test_rounds_continue_without_gateway(rig: Rig) -> None:
    """An unreachable gateway is reported, and nothing changes."""
    async with scaler(rig, url="http://127.0.0.1:1") as running:
        assert "cannot be reached" in running.loop.unreachable
        assert [] == list(running.functions)


@pytest.mark.slow
@story(ProcessStage())
async def test_plan_is_carried_out_when_gateway_returns(rig: Rig) -> None:
    """Reports are processed while it is unreachable, and the plan is carried out afterwards."""
    await rig.deploy("echo", labels=LABELS)
    async with forwarded(rig.provider.address) as way, scaler(rig, url=way.url) as running:
        await wait_until_async(lambda: len(replicas(rig)) == 2, what="a class")
        (kind,) = running.controller.wanted
        running.announce(kind, 1)
        way.open = False
        await wait_until_async(lambda: running.loop.unreachable, what="gone")
        deployed = replicas(rig)

        def crowded() -> bool:
            running.load(1000)
            return sum(running.controller.wanted.values()) > 1

        await wait_until_async(crowded, what="a plan of more")
        assert deployed == replicas(rig)
        way.open = True
        await wait_until_async(lambda: sum(replicas(rig).values()) > 2, what="what was planned")
        assert "" == running.loop.unreachable


@pytest.mark.slow
@story(ProcessStage())
async def test_as_many_instances_as_fit_are_started_and_rest_is_reported(rig: Rig) -> None:
    """As many instances as fit are started, and the refusal of the others is reported."""
    rig.backend.ledger.capacity = replace(rig.backend.ledger.capacity, cpu=1.0)
    await rig.deploy("echo", labels=LABELS)
    async with scaler(rig) as running:
        await wait_until_async(lambda: len(replicas(rig)) == 2, what="a class")
        (kind,) = running.controller.wanted
        running.announce(kind, 1)

        def crowded() -> bool:
            running.load(10_000)
            return replicas(rig)[f"echo--{kind}"] == 2

        await wait_until_async(crowded, what="two of three, on a core")
        await wait_until_async(
            lambda: any("no capacity" in note for note in running.controller.notes), what="said"
        )
        assert ("scale", "failed") in running.metrics.actions


@pytest.mark.slow
@story(ProcessStage())
async def test_servers_default_to_machine_of_provider(rig: Rig) -> None:
    """Without servers in a scenario, the provider's machine and its GPUs are used."""
    await rig.deploy("echo", labels=LABELS)
    async with scaler(rig, servers=False) as running:
        capacity = rig.backend.ledger.capacity
        (node,) = running.planner.nodes
        assert (capacity.cpu, len(capacity.gpus)) == (node.cpu, node.gpus)


class Way:
    """Connection to a gateway that can be closed.

    Attributes:
        url: Its near end.
        open: Whether calls succeed.
    """

    url = ""
    open = True


@asynccontextmanager
async def forwarded(address: str) -> AsyncIterator[Way]:
    """Forward a local port to ``address``."""
    way = Way()
    host, _, port = address.rpartition(":")

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while way.open and (data := await source.read(65536)):
            target.write(data)
        target.close()

    async def connected(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        if not way.open:
            target.close()
            return
        answers, requests = await asyncio.open_connection(host, int(port))
        await asyncio.gather(pump(source, requests), pump(answers, target), return_exceptions=True)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    way.url = "http://{}:{}".format(*server.sockets[0].getsockname())
    try:
        yield way
    finally:
        way.open = False
        server.close()


def _arrivals(rig: Rig) -> list[tuple[str, int, int]]:
    copy = Path(rig.folder / "copy.db")
    copy.write_bytes((rig.folder / "scaler.db").read_bytes())
    wal = Path(rig.folder / "scaler.db-wal")
    if wal.exists():
        Path(rig.folder / "copy.db-wal").write_bytes(wal.read_bytes())
    store = Store(copy)
    try:
        return store.counts("echo")
    finally:
        store.close()
