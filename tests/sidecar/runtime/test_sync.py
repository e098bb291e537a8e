"""A real sidecar and a scripted scaler: reports, plans and operation without a scaler."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from carpool import wire
from carpool.http.client import Pool
from carpool.http.http_exchange import HttpExchange
from carpool.http.server import serve
from carpool.plan import InstanceClass, Plan, Route
from carpool.sync import (
    PATH,
    PROOF,
    Announcement,
    FrontReport,
    SyncAnswer,
    batch_key,
    proof,
    read_message,
)
from scaler.kubernetes import forwarding
from sidecar.runtime.scaler_client import sync
from tests.sidecar.runtime.conftest import HANDLER, ROOT, Sidecar, on_loop
from tests.waiting import HANG_S, stop_process, wait_until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from carpool.http.server import Exchange, Server

TOKEN = "s3cret"


def plan(version: int, function: str = "echo", batch: int = 4, term: int = 0) -> Plan:
    """Return a plan with one class."""
    kind = InstanceClass("big", cpu=1, batch_size=batch, replicas=1)
    return Plan(function, version, "test", (kind,), (Route("*", {"big": 1.0}, 0.0),), term=term)


class Scaler:
    """Scripted scaler."""

    def __init__(self) -> None:
        self.reports: list[FrontReport] = []
        self.said: list[Announcement] = []
        self.plan: Plan | None = None
        self.revision = ""
        self.proof_of = TOKEN
        self.mute = 0
        self.answer: SyncAnswer | None = None

    def order(self, given: Plan, revision: str) -> None:
        """Answer with this plan from now on."""
        self.plan, self.revision = given, revision

    @property
    def ready(self) -> dict[str, tuple[str, ...]]:
        """Addresses whose last announcement was ready."""
        last = {said.address: said for said in self.said}
        return {"big": tuple(a for a, said in last.items() if said.state == "ready")}

    def __call__(self, exchange: Exchange) -> None:
        assert PATH == exchange.target
        assert f"Bearer {TOKEN}".encode() == exchange.header(b"authorization")
        message = read_message(exchange.body)
        if self.mute:
            self.mute -= 1
            if self.mute % 2:
                exchange.reply(503, headers=[("retry-after", "1")])
            else:
                exchange.abort()
            return
        if isinstance(message, FrontReport):
            self.reports.append(message)
            news = self.plan is not None and message.revision != self.revision
            given = self.plan if news else None
            answer = SyncAnswer(0.05, self.revision, given, self.ready if given else {})
            answer = self.answer or answer
        else:
            self.said.append(message)
            answer = SyncAnswer(0.05)
        body = answer.to_json()
        shown = proof(self.proof_of.encode(), message.sender, message.sequence, body)
        exchange.reply(200, body, headers=[(PROOF, shown)])


@asynccontextmanager
async def scaler(folder: Path) -> AsyncIterator[tuple[Scaler, Server]]:
    """Serve a scaler on a socket."""
    scripted = Scaler()
    server = await serve(scripted, listen=f"unix:{folder}/scaler")
    try:
        yield scripted, server
    finally:
        await server.stop()


@asynccontextmanager
async def sidecar(folder: Path, name: str, **env: str) -> AsyncIterator[Sidecar]:
    """Run a sidecar of the function ``echo`` with a scaler."""
    listen = f"unix:{folder}/{name}"
    process = subprocess.Popen(  # noqa: ASYNC220 - returns at once
        [sys.executable, "-m", "sidecar"],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "fprocess": f"{sys.executable} {HANDLER}",
            "sidecar_listen": listen,
            "sidecar_watchdog": "off",
            "sidecar_scaler": f"unix:{folder}/scaler",
            "sidecar_scaler_token": TOKEN,
            "sidecar_function": "echo",
            **env,
        },
    )
    running = Sidecar(process, Pool(listen, max_connections=64))
    try:
        await wait_until_async(running.listening, what="it listens")
        yield running
    finally:
        running.pool.close()
        process.send_signal(signal.SIGTERM)
        await wait_until_async(lambda: process.poll() is not None, what="the sidecar's end")


async def explained(running: Sidecar, count: int = 1) -> list[dict[str, Any]]:
    """Send concurrent requests and return the status, plan and body of each response."""
    asked = [running.ask(f"ok{k}", ("x-carpool-explain", "1")) for k in range(count)]
    answers = await asyncio.gather(*asked)
    return [
        {"status": a.status, "plan": a.header(b"x-carpool-plan"), "body": a.body} for a in answers
    ]


@on_loop
async def test_a_front_holds_requests_until_an_instance_announces_itself(tmp_path: Path) -> None:
    """A front without a handler holds requests until an instance is announced and planned."""
    async with scaler(tmp_path) as (scripted, _), sidecar(tmp_path, "front") as front:
        assert 503 == await front.ready()
        held = [asyncio.ensure_future(front.ask("ok")) for _ in range(8)]
        # The first to wait is told of at once: the others may come after that.
        await wait_until_async(lambda: _queued_while_starving(scripted) == 8, what="starving")
        async with sidecar(tmp_path, "one", sidecar_class="big"):
            await wait_until_async(lambda: scripted.ready["big"], what="an announcement")
            scripted.order(plan(3), "e:1")
            assert [200] * 8 == [(await each).status for each in held]
            assert 200 == await front.ready()
            await wait_until_async(lambda: scripted.reports[-1].version == 3, what="followed")
            assert f"unix:{tmp_path}/one" == scripted.reports[-1].instances[0].address
            # Nor need the first report under the plan know of their answers.
            await wait_until_async(lambda: _counted(scripted)[2] == 8, what="the last is counted")
            assert (8, 8, 8) == _counted(scripted)
        leaving = [said.state for said in scripted.said]
        assert "loading" == leaving[0]
        assert "leaving" == leaving[-1]


@on_loop
async def test_front_continues_without_scaler(tmp_path: Path) -> None:
    """Without a scaler the front continues, and its counts go once to the next scaler."""
    async with sidecar(tmp_path, "one", sidecar_class="big"), sidecar(tmp_path, "front") as front:
        async with scaler(tmp_path) as (first, _):
            await wait_until_async(lambda: first.ready["big"], what="an announcement")
            first.order(plan(1), "e:1")
            assert [(200, b"1")] == [(a["status"], a["plan"]) for a in await explained(front)]
            first.mute = 3  # lost answers, and one to try again: the message comes again
            await wait_until_async(lambda: not first.mute)
            await wait_until_async(lambda: sum(_arrivals(first)) == 1)
        assert [200] * 5 == [a["status"] for a in await explained(front, 5)]
        async with scaler(tmp_path) as (second, _):
            await wait_until_async(lambda: sum(_arrivals(second)) == 5, what="the counts")
            assert 1 == second.reports[-1].version
            sequences = [r.sequence for r in second.reports]
            assert sorted(set(sequences)) == sequences


@on_loop
async def test_reports_go_on_whatever_application_a_caller_names(tmp_path: Path) -> None:
    """Made-up names neither get into a report, which the scaler would refuse, nor hide load."""
    made_up = ("a b", "", "w" * 64, "latency=0.001", "web")
    async with scaler(tmp_path) as (scripted, _), sidecar(tmp_path, "front") as front:
        calls = [asyncio.ensure_future(front.ask("ok", ("x-carpool-app", a))) for a in made_up]
        await wait_until_async(lambda: sum(_arrivals(scripted)) == len(made_up), what="reports")
        assert {"*"} == {app.name for report in scripted.reports for app in report.apps}
        for call in calls:
            call.cancel()


@pytest.mark.slow
@on_loop
async def test_restarted_front_continues_with_saved_plan(tmp_path: Path) -> None:
    """A restarted front continues with its saved plan, even without a scaler."""
    (tmp_path / "notes").mkdir()
    keeps = {"sidecar_plan_folder": str(tmp_path / "notes")}
    async with sidecar(tmp_path, "one", sidecar_class="big"):
        async with scaler(tmp_path) as (scripted, _), sidecar(tmp_path, "front", **keeps) as front:
            await wait_until_async(lambda: scripted.ready["big"], what="an announcement")
            scripted.order(plan(3), "e:1")
            await wait_until_async(lambda: version_of(scripted) == 3, what="followed")
            front.process.kill()
            front.process.wait()
        async with sidecar(tmp_path, "again", **keeps) as front:
            assert [(200, b"3")] == [(a["status"], a["plan"]) for a in await explained(front)]
        (tmp_path / "notes" / "plan.json").write_text("{")
        async with sidecar(tmp_path, "third", **keeps) as front:
            assert 503 == await front.ready()


@pytest.mark.slow
@on_loop
async def test_unproven_foreign_and_outdated_plans_are_refused(tmp_path: Path) -> None:
    """Plans without proof, for another function or older than the current one are refused."""
    async with (
        scaler(tmp_path) as (scripted, _),
        sidecar(tmp_path, "one", sidecar_class="big"),
        sidecar(tmp_path, "front") as front,
    ):
        await wait_until_async(lambda: scripted.ready["big"], what="an announcement")
        scripted.order(plan(5), "e:1")
        await wait_until_async(lambda: version_of(scripted) == 5, what="followed")
        for given, revision in ((plan(4), "e:2"), (plan(9, "other"), "e:3")):
            scripted.order(given, revision)
            before = len(scripted.reports)
            await wait_until_async(lambda: len(scripted.reports) > before + 3)  # noqa: B023
            assert 5 == version_of(scripted)
        scripted.proof_of = "guessed"
        scripted.order(plan(9), "e:4")
        before = len(scripted.reports)
        await wait_until_async(lambda: len(scripted.reports) > before + 3)
        assert 5 == version_of(scripted)
        assert [(200, b"5")] == [(a["status"], a["plan"]) for a in await explained(front)]
        assert 2 <= await front.metric('batch_plans_refused_total{reason="plan"}')
        assert 2 <= await front.metric('batch_plans_refused_total{reason="proof"}')
        scripted.proof_of = TOKEN
        scripted.order(plan(6), "e:5")
        await wait_until_async(lambda: version_of(scripted) == 6, what="followed again")
        scripted.order(plan(1, term=8), "f:1")  # another scaler has taken over
        await wait_until_async(lambda: scripted.reports[-1].term == 8, what="the later term")
        scripted.order(plan(7, term=4), "e:6")
        before = len(scripted.reports)
        await wait_until_async(lambda: len(scripted.reports) > before + 3)
        assert (8, 1) == (scripted.reports[-1].term, version_of(scripted))


@pytest.mark.slow
@on_loop
async def test_instance_takes_whole_batches_from_front(tmp_path: Path) -> None:
    """An instance takes whole batches from a front, and plain requests."""
    async with (
        scaler(tmp_path) as (scripted, _),
        sidecar(tmp_path, "one", sidecar_class="big") as one,
        sidecar(tmp_path, "front") as front,
    ):
        await one.until_ready()
        assert 200 == (await one.ask("ok")).status
        await wait_until_async(lambda: scripted.ready["big"], what="an announcement")
        scripted.order(plan(1, batch=8), "e:1")
        assert [200] * 16 == [a["status"] for a in await explained(front, 16)]
        assert 1 == await one.metric("batch_size_count")  # its own; what passed is the front's
        assert 16 == await front.metric("batch_size_sum")


@pytest.mark.slow
@on_loop
async def test_batch_of_stopped_sidecar_is_sent_elsewhere(tmp_path: Path) -> None:
    """The batch of a stopped sidecar is sent elsewhere long before ``exec_timeout``."""
    times = {"sidecar_silence_max": "1s", "exec_timeout": f"{2 * HANG_S:g}s"}
    async with (
        scaler(tmp_path) as (scripted, _),
        sidecar(tmp_path, "one", sidecar_class="big") as one,
        sidecar(tmp_path, "two", sidecar_class="big"),
        sidecar(tmp_path, "front", **times) as front,
    ):
        await wait_until_async(lambda: len(scripted.ready["big"]) == 2, what="two announcements")
        scripted.order(plan(1, batch=1), "e:1")
        await wait_until_async(lambda: _up(scripted) == 2, what="two instances")
        stop_process(one.process.pid)
        try:
            assert [200] * 4 == [each["status"] for each in await explained(front, 4)]
        finally:
            os.kill(one.process.pid, signal.SIGCONT)


@on_loop
async def test_instance_refuses_batches_without_key_of_its_front(tmp_path: Path) -> None:
    """Instances refuse batches without the key derived from this function's token."""
    message = wire.encode_request([7], [math.inf], [wire.build_head("POST /", [])], [b"ok"])
    forged = ("", "guessed", batch_key("another", "echo"), batch_key(TOKEN, "other"))
    async with scaler(tmp_path), sidecar(tmp_path, "one", sidecar_class="big") as one:
        await one.until_ready()
        for key in forged:
            headers = wire.batch_headers(key)
            assert 403 == (await one.pool.request("POST", "/", headers, message, 30.0)).status
        headers = wire.batch_headers(batch_key(TOKEN, "echo"))
        answer = await one.pool.request("POST", "/", headers, message, 30.0)
        assert (7,) == wire.decode_answer(answer.body).ids


def _up(scripted: Scaler) -> int:
    return sum(each.up for each in scripted.reports[-1].instances) if scripted.reports else 0


def _queued_while_starving(scripted: Scaler) -> int:
    return max([r.queued for r in scripted.reports if r.starving], default=0)


def _counted(scripted: Scaler) -> tuple[int, int, int]:
    """Return the arrivals, executed items and completed requests of all reports."""
    return (
        sum(_arrivals(scripted)),
        sum(found.item_count for r in scripted.reports for found in r.classes),
        sum(r.outcomes.get("done", 0) for r in scripted.reports),
    )


def _arrivals(scripted: Scaler) -> list[int]:
    return [app.arrivals for report in scripted.reports for app in report.apps]


def version_of(scripted: Scaler) -> int | None:
    """Return the plan version that the front follows, by its last report."""
    return scripted.reports[-1].version if scripted.reports else None


def test_a_front_without_a_name_is_refused(tmp_path: Path) -> None:
    """A sidecar with a scaler but without a function name is an error."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    env["sidecar_scaler"] = f"unix:{tmp_path}/scaler"
    done = subprocess.run(
        [sys.executable, "-m", "sidecar"], cwd=ROOT, env=env, capture_output=True, check=False
    )
    assert 2 == done.returncode
    assert b"sidecar_function" in done.stderr


class Announced:
    """Member that announces a ready instance."""

    def message(self, sender: str, sequence: int) -> Announcement:
        """Return the next message."""
        return Announcement("echo", sender, sequence, "big", "10.0.0.1:8080", "ready", 0.0, "")

    def answered(self, answer: SyncAnswer) -> None:
        """Ignore the response."""


@on_loop
async def test_message_to_silent_scaler_is_resent_over_new_connection(tmp_path: Path) -> None:
    """After silence, the same message goes over another connection, perhaps to another scaler."""
    came: list[tuple[object, bytes]] = []

    def silent(exchange: Exchange) -> None:
        assert isinstance(exchange, HttpExchange)
        came.append((exchange.connection, exchange.body))  # an id might come again

    server = await serve(silent, listen=f"unix:{tmp_path}/scaler")
    with patch.object(sync, "_TIMEOUT_S", 0.05):
        reports = sync.Sync(server.address, "", Announced())
        reports.start()
        await wait_until_async(lambda: len(came) > 1, what="another try")
    await reports.close()
    await server.stop()
    (first, message), (second, again) = came[:2]
    assert message == again
    assert first is not second


@pytest.mark.parametrize("status", [400, 413])
@on_loop
async def test_message_is_dropped_if_its_form_or_size_is_refused(
    tmp_path: Path, status: int
) -> None:
    """A message that the scaler would refuse each time is not sent again, and is counted."""
    came: list[int] = []

    def refusing(exchange: Exchange) -> None:
        came.append(read_message(exchange.body).sequence)
        exchange.reply(status)

    server = await serve(refusing, listen=f"unix:{tmp_path}/scaler")
    reports = sync.Sync(server.address, "", Announced())
    reports.start()
    await wait_until_async(lambda: len(came) > 1, what="another message")
    await reports.close()
    await server.stop()
    assert [1, 2] == came[:2]
    assert reports.refused["message"] >= 1


def test_time_in_silence_counts_towards_retry_delay() -> None:
    """Retries are delayed more and more after refusals; time spent in silence counts as delay."""
    refusing, silent = (sync.Sync("127.0.0.1:1", "", Announced()) for _ in range(2))
    assert [0.25, 0.5, 1, 2, 4, 5] == [refusing._failed("it refuses", 0.0) for _ in range(6)]
    assert [0, 0, 0, 0, 1, 2] == [silent._failed("silence", 3.0) for _ in range(6)]


def test_sidecar_waits_longer_than_forwarding_scaler() -> None:
    """A sidecar waits longer than a forwarding scaler does, and so stays with it."""
    assert forwarding._SYNC_TIMEOUT_S < sync._TIMEOUT_S


@on_loop
async def test_load_jump_is_reported_immediately(tmp_path: Path) -> None:
    """A jump of the load is reported at once, however long the report interval."""
    async with scaler(tmp_path) as (scripted, _), sidecar(tmp_path, "front") as front:
        await wait_until_async(lambda: scripted.reports, what="a report")
        scripted.answer = SyncAnswer(3600.0)
        spoken = len(scripted.reports)
        await wait_until_async(lambda: len(scripted.reports) > spoken, what="the new interval")
        calls = [asyncio.ensure_future(front.ask("ok")) for _ in range(40)]
        await wait_until_async(lambda: scripted.reports[-1].surging, what="the news")
        for call in calls:
            call.cancel()
