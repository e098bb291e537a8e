"""What OpenFaaS's gateway and faas-cli send, byte for byte, and the responses they need."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

from faas_stack.provider.basic_auth_check import BasicAuth
from tests.faas_stack.gateway_client import AUTH, Gateway, functions, status
from tests.faas_stack.rig import IMAGE, story
from tests.waiting import wait_until_async

if TYPE_CHECKING:
    from tests.faas_stack.gateway_client import Answer
    from tests.faas_stack.rig import Rig

ADMIN = BasicAuth("admin", "pass:word")
NS = "openfaas-fn"
CALL = {"X-Call-Id": "5f3c1f2e-9d4b-4a75-8d0e-0f2f7c1d6a11", "X-Start-Time": "1767323045000000000"}
# As faas-cli 0.18 sends it: every map is there, empty or not, and numbers are text.
DEPLOYMENT: dict[str, Any] = {
    "service": "fn",
    "image": IMAGE,
    "namespace": NS,
    "envProcess": "",
    "envVars": {"mode": "http"},
    "constraints": None,
    "secrets": [],
    "labels": {"com.openfaas.scale.min": "1"},
    "annotations": {},
    "limits": None,
    "requests": None,
    "readOnlyRootFilesystem": False,
}


def gateway_of(rig: Rig) -> Gateway:
    """Return the gateway in front of a test's provider."""
    return Gateway(rig.provider.address)


async def changes(rig: Rig, method: str, target: str, document: object) -> Answer:
    """Send a change as faas-cli does, through the gateway."""
    headers = {**AUTH, "Content-Type": "application/json", "User-Agent": "faas-cli/0.18.12"}
    body = json.dumps(document).encode()
    return await gateway_of(rig).passes_on(method, target, body, headers)


@story(auth=ADMIN)
async def test_gateway_can_parse_its_polls(rig: Rig) -> None:
    """The gateway can parse its polls: namespaces, each one's functions, health and info."""
    gateway = gateway_of(rig)
    answer = await gateway.own("GET", "/system/namespaces")
    assert (200, [NS]) == (answer.status, answer.json())
    assert [] == functions(await gateway.own("GET", f"/system/functions?namespace={NS}"))
    assert [] == functions(await gateway.own("GET", "/system/functions"))
    assert 202 == (await changes(rig, "POST", "/system/functions", DEPLOYMENT)).status
    await rig.ready("fn")
    (listed,) = functions(await gateway.own("GET", f"/system/functions?namespace={NS}"))
    assert ("fn", 1, 1) == (listed["name"], listed["replicas"], listed["availableReplicas"])
    assert 200 == (await gateway.own("GET", "/healthz")).status
    head = await gateway.send(b"HEAD /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert (200, b"") == (head.status, head.body)
    info = (await gateway.own("GET", "/system/info")).json()
    assert {"provider": str, "orchestration": str} == {
        key: type(info[key]) for key in ("provider", "orchestration")
    }
    assert {"release", "sha"} <= info["version"].keys()


@story(auth=ADMIN)
async def test_faas_cli_deploys_updates_and_removes(rig: Rig) -> None:
    """faas-cli deploys, updates and removes a function with the statuses it expects."""
    assert 404 == (await changes(rig, "PUT", "/system/functions", DEPLOYMENT)).status
    created = await changes(rig, "POST", "/system/functions", DEPLOYMENT)
    assert (202, b"") == (created.status, created.body)
    await rig.ready("fn")
    update = {**DEPLOYMENT, "labels": {"topic": "cats"}}
    assert 202 == (await changes(rig, "PUT", "/system/functions", update)).status
    path = f"/system/function/fn?namespace={NS}&usage=1"
    found = status(await gateway_of(rig).own("GET", path))
    assert {"topic": "cats"} == found["labels"]
    removal = {"functionName": "fn", "namespace": NS}
    assert 202 == (await changes(rig, "DELETE", "/system/functions", removal)).status
    assert 404 == (await changes(rig, "DELETE", "/system/functions", removal)).status
    assert 404 == (await gateway_of(rig).own("GET", path)).status


@story(auth=ADMIN)
async def test_invocation_arrives_unchanged(rig: Rig) -> None:
    """A call needs no credentials; its path, query, headers and chunked body arrive unchanged."""
    await changes(rig, "POST", "/system/functions", DEPLOYMENT)
    await rig.ready("fn")
    gateway = gateway_of(rig)
    sent = {**CALL, "Authorization": "Bearer of-the-client", "X-Own": "kept", "Accept": "*/*"}
    for target, seen in (
        ("/function/fn", "/"),
        ("/function/fn/a/b?q=%20x&q=2&empty", "/a/b?q=%20x&q=2&empty"),
        ("/function/fn.openfaas-fn/%20", "/%20"),
    ):
        answer = await gateway.passes_on("POST", target, b"hello", sent)
        document = answer.json()
        assert (200, seen, "hello") == (answer.status, document["target"], document["body"])
        arrived = dict(document["headers"])
        for name, text in {**sent, "X-Forwarded-For": "10.62.0.1:52044"}.items():
            assert text == arrived[name.lower()]
        # The gateway has put these on its own answer already; a second one would be added to it.
        assert set() == {"x-call-id", "x-start-time"} & answer.headers.keys()
    large = bytes(range(256)) * 4096
    answer = await gateway.passes_on("PUT", "/function/fn", large, CALL)
    assert large == answer.json()["body"].encode("latin-1")


@story(auth=ADMIN)
async def test_invocation_without_a_body(rig: Rig) -> None:
    """A GET without a body and one with an empty chunked body are the same to the function."""
    await changes(rig, "POST", "/system/functions", DEPLOYMENT)
    await rig.ready("fn")
    for body in (None, b""):
        answer = await gateway_of(rig).passes_on("GET", "/function/fn/x", body, CALL)
        assert (200, "GET", "") == (
            answer.status,
            answer.json()["method"],
            answer.json()["body"],
        )


@story(auth=ADMIN)
async def test_gateway_starts_function_from_zero(rig: Rig) -> None:
    """The gateway starts a function from zero with its status and scale calls, then calls it."""
    gateway = gateway_of(rig)
    document = {**DEPLOYMENT, "labels": {"com.carpool.scale.min": "0"}}
    assert 202 == (await changes(rig, "POST", "/system/functions", document)).status
    path = f"/system/function/fn?namespace={NS}&usage=false"
    asleep = status(await gateway.own("GET", path))
    assert (0, 0) == (asleep.get("replicas", 0), asleep.get("availableReplicas", 0))
    scale = {"serviceName": "fn", "replicas": 1}
    answer = await gateway.own("POST", f"/system/scale-function/fn?namespace={NS}", scale)
    assert 202 == answer.status
    found: dict[str, Any] = {}

    async def awake() -> bool:
        found.update(status(await gateway.own("GET", path)))
        return bool(found.get("availableReplicas"))

    for _ in range(1000):  # as often as the gateway asks, and as seldom: every 100 ms
        if await awake():
            break
        await asyncio.sleep(0.1)
    assert (1, 1) == (found["replicas"], found["availableReplicas"])
    assert 200 == (await gateway.passes_on("POST", "/function/fn", b"x", CALL)).status
    for wrong in (-1, 1.5, "2"):
        answer = await gateway.own(
            "POST", f"/system/scale-function/fn?namespace={NS}", {**scale, "replicas": wrong}
        )
        assert 400 == answer.status


@story(auth=ADMIN)
async def test_function_learns_of_client_disconnect(rig: Rig) -> None:
    """When the gateway closes its connection, the function learns that the client has left."""
    await changes(rig, "POST", "/system/functions", DEPLOYMENT)
    await rig.ready("fn")
    gateway = gateway_of(rig)
    _, writer = await asyncio.open_connection(gateway.host, gateway.port)
    writer.write(gateway.forwarded("POST", "/function/fn/hang", b"x", CALL))
    await rig.printed("fn", "hanging")
    writer.close()
    await rig.printed("fn", "the client left")
    replica = rig.function("fn").running[0]
    await wait_until_async(lambda: replica.in_flight == 0)


@story(auth=ADMIN)
async def test_event_stream_without_port_in_host_arrives(rig: Rig) -> None:
    """Event streams, for which the gateway omits the port in the host, arrive event by event."""
    await changes(rig, "POST", "/system/functions", DEPLOYMENT)
    await rig.ready("fn")
    gateway = gateway_of(rig)
    head = (
        f"GET /function/fn/events HTTP/1.1\r\nHost: {gateway.host}\r\nUser-Agent: curl/8.5.0\r\n"
        "Accept: text/event-stream\r\nX-Call-Id: 1\r\nX-Forwarded-For: 10.62.0.1\r\n"
        "X-Start-Time: 1767323045000000000\r\nAccept-Encoding: gzip\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
    writer.write(head.encode())
    first = await reader.readuntil(b"data: 1\n\n")
    assert first.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\ncontent-type: text/event-stream\r\n" in first
    await rig.call("POST", "/function/fn/last-event")
    assert b"data: 2\n\n" in await reader.readuntil(b"0\r\n\r\n")
    writer.close()


@story(auth=ADMIN)
async def test_secret_operations_have_expected_statuses(rig: Rig) -> None:
    """Secret operations have the statuses that faas-cli takes for success, conflict and absence."""
    secret = {"name": "key", "namespace": NS, "value": "word"}
    for method, document, expected in (
        ("PUT", secret, 404),
        ("POST", secret, 202),
        ("POST", secret, 409),
        ("PUT", {**secret, "value": "", "rawValue": "d29yZDI="}, 202),
    ):
        assert expected == (await changes(rig, method, "/system/secrets", document)).status
    answer = await gateway_of(rig).own("GET", f"/system/secrets?namespace={NS}")
    assert [{"name": "key", "namespace": NS}] == answer.json()
    await changes(rig, "POST", "/system/functions", {**DEPLOYMENT, "secrets": ["key"]})
    await rig.ready("fn")
    seen = (await gateway_of(rig).passes_on("GET", "/function/fn")).json()["secrets"]
    assert {"key": "word2"} == seen
    for expected in (202, 404):
        removal = {"name": "key", "namespace": NS}
        assert expected == (await changes(rig, "DELETE", "/system/secrets", removal)).status


@story(auth=ADMIN)
async def test_logs_are_json_lines_and_need_credentials(rig: Rig) -> None:
    """Logs need the caller's credentials and are sent as a line of JSON each."""
    await changes(rig, "POST", "/system/functions", DEPLOYMENT)
    await rig.ready("fn")
    await gateway_of(rig).passes_on("POST", "/function/fn/print", b"seen", CALL)
    await rig.printed("fn", "seen")
    query = "follow=false&name=fn&namespace=&since=2026-01-02T03%3A04%3A05Z&tail=5"
    headers = {**AUTH, "User-Agent": "faas-cli/0.18.12"}
    answer = await gateway_of(rig).passes_on("GET", f"/system/logs?{query}", None, headers)
    assert (200, "application/x-ndjson") == (answer.status, answer.headers["content-type"])
    lines = [json.loads(line) for line in answer.body.splitlines()]
    assert "seen" in [line["text"] for line in lines]
    assert {"name", "namespace", "instance", "timestamp", "text"} == lines[0].keys()
    assert re.fullmatch(r"[-0-9]+T[:.0-9]+(Z|[+-]\d\d:\d\d)", lines[0]["timestamp"])
    unknown = await gateway_of(rig).passes_on("GET", "/system/logs?name=none", None, headers)
    assert 404 == unknown.status


@story(auth=ADMIN)
async def test_only_calls_and_health_need_no_credentials(rig: Rig) -> None:
    """The provider requires the gateway's credentials for everything but calls and health."""
    gateway = gateway_of(rig)
    for method, target in (
        ("GET", "/system/functions"),
        ("DELETE", "/system/functions"),
        ("POST", "/system/scale-function/fn"),
        ("GET", "/system/logs?name=fn"),
    ):
        answer = await gateway.passes_on(method, target, b"{}")
        assert 401 == answer.status
        assert 'Basic realm="Restricted"' == answer.headers["www-authenticate"]
    assert 200 == (await gateway.send(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")).status


@story(auth=ADMIN)
async def test_error_body_is_one_readable_line(rig: Rig) -> None:
    """An error has a body of one readable line, as faas-cli prints it unchanged."""
    refused = await changes(rig, "POST", "/system/functions", {**DEPLOYMENT, "service": "../fn"})
    assert 400 == refused.status
    assert b"\n" not in refused.body.strip()
    assert "service = '../fn': expected a name of lower-case" in refused.json()["error"]
