"""``POST /v1/sync`` over a real socket: accepted messages, refused ones and responses."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import threading
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs
from werkzeug.serving import WSGIRequestHandler, make_server

from carpool.http.client import Pool
from carpool.http.hosts import Hosts
from carpool.http.server import Limits, serve
from carpool.sync import (
    PATH,
    PROOF,
    Announcement,
    AppReport,
    FrontReport,
    SyncAnswer,
    function_token,
    proof,
)
from scaler.access_tokens import AccessTokens
from scaler.api import Api
from scaler.control.class_function import Status
from scaler.control.dependencies import Dependencies
from scaler.control.functions import Functions
from scaler.control.message_order import MessageOrder
from scaler.dashboard.sampler import Sampler
from scaler.live_planner import Planner, PlannerSettings
from scaler.loop import Loop
from scaler.metrics import Metrics
from scaler.openfaas_client import GatewayClient
from scaler.persistence import Persistence
from scaler.planning.cost import Prices
from scaler.store import Store
from scaler.sync_api import SyncApi
from scaler.web.app import create
from scaler.web.documents import Documents
from scaler.web.publisher import Publisher
from scaler.web.server import Readers, socket_of
from scaler.web.snapshot import SnapshotFile
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    from werkzeug.serving import BaseWSGIServer

    from carpool.http.client import Response

TOKEN = "s3cret"
LABELS = {"com.carpool.slo": "200ms", "com.carpool.scale.policy": "infless"}
BASE = Status.of({"name": "echo", "image": "x", "replicas": 1, "labels": LABELS})
PLAIN = Status.of({"name": "plain", "image": "x", "replicas": 1})
LISTED = {"echo": BASE, "plain": PLAIN}
REPORT = FrontReport("echo", "a" * 16, 1, period_s=0.5, apps=(AppReport("*", 5),))


class Caller:
    """A scaler's listening API and a client of it."""

    def __init__(
        self,
        functions: Functions,
        metrics: Metrics,
        sampler: Sampler,
        sync: SyncApi,
        address: str,
    ) -> None:
        self.sync = sync
        self.functions = functions
        self.metrics = metrics
        self.sampler = sampler
        self.address = address
        self.pool = Pool(address)

    async def say(
        self, message: FrontReport | Announcement | bytes, token: str = TOKEN
    ) -> Response:
        """Send one sync and return the response."""
        body = message if isinstance(message, bytes) else message.to_json()
        headers = [("authorization", f"Bearer {token}")]
        return await self.pool.request("POST", PATH, headers, body, HANG_S)

    async def get(self, path: str, token: str = TOKEN) -> tuple[int, Any]:
        """Return status and document of a page for users."""
        headers = [("authorization", f"Bearer {token}")]
        answer = await self.pool.request("GET", path, headers, b"", HANG_S)
        return answer.status, json.loads(answer.body)


# Keeps connections, as gunicorn does, and says nothing.
HANDLER = type(
    "Handler",
    (WSGIRequestHandler,),
    {"protocol_version": "HTTP/1.1", "log": lambda *_: None},
)


def flask_server(folder: Path) -> BaseWSGIServer:
    """Serve the application that reads snapshots in a thread."""
    where = socket_of(folder).replace("unix:", "unix://")
    made = make_server(where, 0, create(str(folder)), threaded=True, request_handler=HANDLER)
    threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
    return made


@asynccontextmanager
async def scaler(
    folder: Path,
    token: str = TOKEN,
    *,
    snapshot: SnapshotFile | None = None,
    every_s: float = 0.0,
    serves: bool = True,
    listed: bool = True,
) -> AsyncIterator[Caller]:
    """Run a scaler without rounds, with the state that the test sets."""
    functions = Functions(Dependencies(), now=time.monotonic, wall=time.time)
    if listed:
        functions.observe(LISTED)
    functions.active = True
    metrics = Metrics(lambda: list(functions), functions.now)
    senders, planner = MessageOrder(), Planner(PlannerSettings(Prices()))
    store = Store(folder / "scaler.db")
    gateway = GatewayClient("http://127.0.0.1:1")
    loop = Loop(functions, gateway, planner, Persistence(store, functions, senders), metrics)
    sync = SyncApi(functions, AccessTokens(token, Hosts(["127.0.0.1:0"])), metrics, senders)
    sampler = Sampler(functions, planner, Prices())
    documents = Documents(functions, planner, loop)
    written = snapshot or SnapshotFile(folder)
    publisher = Publisher(functions, documents, sampler, metrics, written, every_s)
    web = flask_server(folder) if serves else None
    readers = Readers(socket_of(folder), publisher)
    api = Api(sync, readers)
    server = await serve(api, listen="127.0.0.1:0", limits=Limits(body_bytes=2**20))
    caller = Caller(functions, metrics, sampler, sync, server.address)
    try:
        yield caller
    finally:
        caller.pool.close()
        await server.stop()
        readers.close()
        if web:
            web.shutdown()
            web.server_close()
        store.close()
        gateway.close()


def with_scaler(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test with a scaler on its own event loop."""

    @functools.wraps(test)
    def run(tmp_path: Path, **arguments: Any) -> None:
        async def scene() -> None:
            async with scaler(tmp_path) as caller:
                await test(caller, **arguments)

        asyncio.run(scene())

    del run.__wrapped__  # its parameters are not the test's
    return run


@with_scaler
async def test_plan_is_sent_to_front_once(caller: Caller) -> None:
    """A new plan comes with addresses and proof, and the next response does not repeat it."""
    controller = caller.functions.find("echo")
    assert controller is not None
    controller.follow(controller.first_plan(), 0.0)
    said = Announcement("echo", "b" * 16, 1, "first", "10.0.0.9:8080", "ready", 1.0)
    assert 200 == (await caller.say(said)).status
    controller.step(caller.functions.now(), 0.0)

    told = await caller.say(REPORT)
    answer = SyncAnswer.from_json(told.body)
    assert {"first": ("10.0.0.9:8080",)} == answer.instances
    assert answer.plan is not None
    shown = proof(TOKEN.encode(), REPORT.sender, 1, told.body)
    assert shown.encode() == told.header(PROOF.encode())

    again = structs.replace(
        REPORT, sequence=2, revision=answer.revision, version=answer.plan.version
    )
    assert SyncAnswer.from_json((await caller.say(again)).body).plan is None
    assert 5 * 2 == controller.reports.arrivals["*"]


@with_scaler
async def test_invalid_messages_are_refused_and_counted(caller: Caller) -> None:
    """Wrong tokens, forms, functions and sizes and replayed messages change nothing."""
    assert 200 == (await caller.say(REPORT)).status
    refused: dict[str, tuple[int, FrontReport | bytes, str]] = {
        "token": (401, REPORT, "wrong"),
        "form": (400, b'{"function": "echo"}', TOKEN),
        "size": (413, b" " * 300_000, TOKEN),
        "function": (404, structs.replace(REPORT, function="plain", sequence=9), TOKEN),
        "replayed": (409, REPORT, TOKEN),
    }
    for reason, (status, message, token) in refused.items():
        for _ in range(3):
            assert status == (await caller.say(message, token)).status, reason
    assert dict.fromkeys(refused, 3) == dict(caller.metrics.refused)
    controller = caller.functions.find("echo")
    assert controller is not None
    assert 5 == controller.reports.arrivals["*"]
    metrics = caller.metrics.render().decode()
    assert 'scaler_syncs_refused_total{reason="replayed"} 3.0' in metrics


@with_scaler
async def test_function_token_is_valid_for_its_function_only(caller: Caller) -> None:
    """Its sidecars get responses with a proof by that token, and other functions are refused."""
    own = function_token(TOKEN.encode(), "echo")
    told = await caller.say(REPORT, own.decode())
    shown = proof(own, REPORT.sender, 1, told.body)
    assert (200, shown.encode()) == (told.status, told.header(PROOF.encode()))
    of_plain = function_token(TOKEN.encode(), "plain").decode()
    later = structs.replace(REPORT, sequence=2)
    refused = {of_plain: 403, f"echo.{'0' * 64}": 401, own.decode()[1:]: 401, ".": 401}
    for token, status in refused.items():
        assert status == (await caller.say(later, token)).status, token
    assert {"token": 4} == dict(caller.metrics.refused)
    assert 401 == (await caller.get("/v1/functions", own.decode()))[0]


def test_sidecar_listener_serves_only_syncs(tmp_path: Path) -> None:
    """It serves neither functions nor metrics nor the page, even with the token."""

    async def scene() -> None:
        async with scaler(tmp_path) as caller:
            server = await serve(caller.sync, listen="127.0.0.1:0")
            caller.pool = Pool(server.address)
            assert 200 == (await caller.say(REPORT)).status
            for path in ("/", "/v1/functions", "/v1/history/echo", "/metrics", "/healthz"):
                assert 404 == (await caller.get(path))[0], path
            await server.stop()

    asyncio.run(scene())


def test_a_refusal_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The first refusal of a kind is a warning, and further ones are only counted."""

    async def scene() -> None:
        async with scaler(tmp_path) as caller:
            for _ in range(5):
                await caller.say(REPORT, "wrong")

    with caplog.at_level(logging.WARNING):
        asyncio.run(scene())
    assert 1 == len([r for r in caplog.records if "refused" in r.message])


@with_scaler
async def test_oversized_body_is_refused(caller: Caller) -> None:
    """A body larger than any message is not read to its end."""
    assert 413 == (await caller.say(b" " * 2_000_000)).status


@with_scaler
async def test_user_pages_need_token(caller: Caller) -> None:
    """The overview, single functions and metrics need the token; health does not."""
    await caller.say(REPORT)
    status, lines = await caller.get("/v1/functions")
    assert (200, ["echo"]) == (status, [line["name"] for line in lines["functions"]])
    status, whole = await caller.get("/v1/functions/echo")
    assert (200, 1, None) == (status, whole["fronts"], whole["plan"])
    status, error = await caller.get("/v1/functions/ecko")
    assert (404, True) == (status, "did you mean 'echo'" in error["error"])
    assert 404 == (await caller.get("/v1/shadow"))[0]
    assert 401 == (await caller.get("/v1/functions", "wrong"))[0]
    assert 401 == (await caller.pool.request("GET", "/metrics")).status
    shown = [("authorization", f"Bearer {TOKEN}")]
    assert b'"echo"' in (await caller.pool.request("GET", "/metrics", shown)).body
    assert 200 == (await caller.pool.request("GET", "/healthz")).status
    assert 405 == (await caller.pool.request("DELETE", "/v1/functions")).status


def test_requests_get_503_until_gateway_has_listed_functions(tmp_path: Path) -> None:
    """Until then, sidecars and users get a 503 with Retry-After instead of a 404."""

    async def scene() -> None:
        async with scaler(tmp_path, listed=False, every_s=3600.0) as caller:
            early = await caller.say(REPORT)
            assert (503, b"1") == (early.status, early.header(b"retry-after"))
            assert {"unlisted": 1} == dict(caller.metrics.refused)
            shown = [("authorization", f"Bearer {TOKEN}")]
            for path in ("/v1/functions/echo", "/v1/history/echo", "/v1/functions/none"):
                answer = await caller.pool.request("GET", path, shown)
                assert (503, b"1") == (answer.status, answer.header(b"retry-after")), path
                assert b"the gateway has not listed its functions yet" in answer.body
            _, overview = await caller.get("/v1/functions")
            assert ([], True) == (overview["functions"], "not listed" in overview["trouble"])
            caller.functions.observe(LISTED)
            assert 200 == (await caller.say(REPORT)).status
            assert 200 == (await caller.get("/v1/functions/echo"))[0]
            assert 404 == (await caller.get("/v1/functions/none"))[0]
            assert "" == (await caller.get("/v1/functions"))[1]["trouble"]

    asyncio.run(scene())


@pytest.mark.parametrize("header", [("origin", "http://evil.example"), ("host", "evil.example")])
def test_foreign_origin_or_host_is_refused(tmp_path: Path, header: tuple[str, str]) -> None:
    """Another origin or host is refused, except for a report with the token."""

    async def attack() -> None:
        shown = ("authorization", f"Bearer {TOKEN}")
        async with scaler(tmp_path) as caller:
            for path in ("/", "/page.js", "/healthz", "/metrics", "/v1/functions", "/v1/shadow"):
                answer = await caller.pool.request("GET", path, [header, shown])
                assert 403 == answer.status, path
                assert b"--allow-host" in answer.body
            answer = await caller.pool.request("POST", PATH, [header], REPORT.to_json())
            assert 401 == answer.status
            answer = await caller.pool.request("POST", PATH, [header, shown], REPORT.to_json())
            assert 200 == answer.status
        (tmp_path / "open").mkdir()
        async with scaler(tmp_path / "open", token="") as caller:
            answer = await caller.pool.request("POST", PATH, [header], REPORT.to_json())
            assert 403 == answer.status
            assert 200 == (await caller.say(REPORT)).status

    asyncio.run(attack())
