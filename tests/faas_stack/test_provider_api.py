"""Tests of the provider's REST API over HTTP: exact statuses and exact JSON."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

import carpool
from carpool.http.client import Pool
from faas_stack.provider.basic_auth_check import BasicAuth
from faas_stack.revision import revision
from tests.faas_stack.rig import IMAGE, story
from tests.ports import free_port
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from tests.faas_stack.rig import Rig

FN = {"service": "fn", "image": IMAGE}
CALLS = f"127.0.0.1:{free_port()}"


def error_of(body: bytes) -> str:
    """Return the message of an error response."""
    document = json.loads(body)
    assert ["error"] == list(document)
    return str(document["error"])


@story()
async def test_functions_are_deployed_listed_and_removed(rig: Rig) -> None:
    """Functions are deployed, listed, described and removed with the statuses faas-cli accepts."""
    assert (200, b"[]") == (await rig.call("GET", "/system/functions"))[::2]
    assert (202, b"") == (await rig.call("POST", "/system/functions", FN))[::2]
    await rig.ready("fn")
    listed = await rig.call("GET", "/system/functions?namespace=openfaas-fn")
    one = await rig.call("GET", "/system/function/fn?usage=1")
    assert [json.loads(one.body)] == json.loads(listed.body)
    assert (200, b"[]") == (await rig.call("GET", "/system/functions?namespace=other"))[::2]
    removal = {"functionName": "fn", "namespace": "openfaas-fn"}
    assert (202, b"") == (await rig.call("DELETE", "/system/functions", removal))[::2]
    assert 404 == (await rig.call("GET", "/system/function/fn")).status
    assert 404 == (await rig.call("DELETE", "/system/functions", removal)).status
    await rig.deploy("fn")  # at once, while the replica of the removed one may still be there
    assert 200 == (await rig.call("GET", "/function/fn")).status


@pytest.mark.slow
@story()
async def test_routes_accept_described_methods(rig: Rig) -> None:
    """Each route accepts the described methods; functions are described with their objectives."""
    apps = '[{"name": "web", "slo": "100ms"}]'
    settings = {"com.carpool.slo": "2s", "com.carpool.slo.percentile": "0.95"}
    await rig.deploy("fn", ready=False, labels=settings, annotations={"com.carpool.apps": apps})
    await rig.deploy("other", ready=False, namespace="team")
    await rig.deploy("fn--large", ready=False, envVars={"sidecar_class": "large"})
    document = json.loads((await rig.call("GET", "/openapi.json")).body)
    assert ("3.1.0", {}) == (document["openapi"], document["components"]["securitySchemes"])
    calls = {path for path in document["paths"] if path.startswith("/function/")}
    assert {"/function/fn", "/function/other.team"} == calls
    fn = document["paths"]["/function/fn"]["post"]
    assert {"*": "2s", "web": "100ms"} == fn["x-carpool"]["objectives"]
    assert "95 % are to be answered within 2s, 100ms for the application web" == fn["description"]
    for path in document["paths"].keys() - calls:
        known = {method.upper() for method in document["paths"][path] if method != "parameters"}
        refused = await rig.call("TRACE", path.replace("{name}", "x"))
        allowed = (refused.header(b"allow") or b"").decode().split(", ")
        assert (405, known) == (refused.status, set(allowed)), path


@story()
async def test_function_status_is_exact(rig: Rig) -> None:
    """Integers are integers, times have an offset, and zero replicas are included."""
    fields: dict[str, Any] = {
        "envProcess": "python x",
        "envVars": {"a": "b"},
        "labels": {"com.carpool.scale.min": "0"},
        "annotations": {"topic": "t"},
        "secrets": [],
    }
    await rig.deploy("fn", ready=False, **fields)
    answer = await rig.call("GET", "/system/function/fn")
    assert b"application/json" == answer.header(b"content-type")
    status = json.loads(answer.body)
    created = status.pop("createdAt")
    assert None is not datetime.fromisoformat(created).tzinfo
    assert {
        "name": "fn",
        "image": IMAGE,
        "namespace": "openfaas-fn",
        "envProcess": "python x",
        "envVars": {"a": "b"},
        "labels": {"com.carpool.scale.min": "0"},
        "annotations": {"topic": "t"},
        "replicas": 0,
        "availableReplicas": 0,
        "invocationCount": 0,
    } == status
    assert None is re.search(rb'eplicas": \d+\.', answer.body)


@story()
async def test_update(rig: Rig) -> None:
    """PUT replaces a function, and is 404 for an unknown one, whereupon faas-cli sends POST."""
    assert 404 == (await rig.call("PUT", "/system/functions", FN)).status
    await rig.deploy("fn")
    conflict = await rig.call("POST", "/system/functions", FN)
    assert 409 == conflict.status
    assert "update it with PUT" in error_of(conflict.body)
    assert (202, b"") == (await rig.call("PUT", "/system/functions", {**FN, "labels": {"a": "b"}}))[
        ::2
    ]
    status = json.loads((await rig.call("GET", "/system/function/fn")).body)
    assert {"a": "b"} == status["labels"]


@story()
async def test_concurrent_deployment_of_same_name_gets_409(rig: Rig) -> None:
    """Of two concurrent deployments of one name, one is accepted and the other gets a 409."""
    calls = (rig.call("POST", "/system/functions", FN) for _ in range(2))
    assert [202, 409] == sorted([answer.status for answer in await asyncio.gather(*calls)])
    await rig.ready("fn")
    assert 1 == len(rig.instances("fn"))


@story()
async def test_bad_deployments(rig: Rig) -> None:
    """Invalid deployments get a 400 with value and expectation, and change nothing."""
    cases: list[tuple[object, str]] = [
        (b"{", "not JSON"),
        (b"[]", "must be a JSON object"),
        ({}, "service = ''"),
        ({**FN, "image": "none"}, "image = 'none': expected "),
        ({**FN, "secrets": ["nope"]}, "secrets = 'nope': expected an existing secret"),
        ({**FN, "labels": {"com.carpool.slo": "x"}}, "com.carpool.slo = 'x'"),
        ({**FN, "labels": {"com.carpool.batch.policy": "fixd"}}, "did you mean 'fixed'"),
        ({**FN, "labels": {"a": 1}}, "labels.a = '1': expected text"),
        ({**FN, "envVars": {"carpool_batch_mx": "1"}}, "carpool_batch_mx"),
        ({**FN, "service": "a.b"}, "service = 'a.b'"),
        ({**FN, "service": "../a"}, "service = '../a'"),
    ]
    await rig.deploy("old")
    for document, expected in cases:
        answer = await rig.call("POST", "/system/functions", document)
        assert 400 == answer.status
        assert expected in error_of(answer.body)
    answer = await rig.call("PUT", "/system/functions", {"service": "old", "image": "none"})
    assert 400 == answer.status
    assert IMAGE == rig.function("old").deployment.image
    assert 1 == len(rig.orchestrator.all())


@pytest.mark.slow
@story()
async def test_scale(rig: Rig) -> None:
    """Scaling responds 202 at once and takes the namespace from body, query or name."""
    await rig.deploy("fn", namespace="openfaas-fn")
    await rig.deploy("fn2", ready=False, namespace="team")
    path = "/system/scale-function/"
    calls: list[tuple[str, dict[str, Any]]] = [
        ("fn", {"serviceName": "fn", "replicas": 2}),
        ("fn2?namespace=team", {"serviceName": "fn2", "replicas": 2}),
        ("fn2", {"serviceName": "fn2", "replicas": 3, "namespace": "team"}),
        ("fn2.team", {"replicas": 1}),
    ]
    for name, document in calls:
        assert (202, b"") == (await rig.call("POST", path + name, document))[::2]
    await rig.ready("fn", 2)
    team = rig.orchestrator.find("fn2", "team")
    assert (2, 1) == (rig.function("fn").replicas, team.replicas)
    assert 202 == (await rig.call("POST", path + "fn", {"replicas": 0})).status
    await wait_until_async(lambda: not rig.function("fn").running)
    status = json.loads((await rig.call("GET", "/system/function/fn")).body)
    assert (0, 0) == (status["replicas"], status["availableReplicas"])


@story()
async def test_bad_scale(rig: Rig) -> None:
    """An invalid number of replicas is a 400, and an unknown function a 404."""
    await rig.deploy("fn")
    path = "/system/scale-function/fn"
    for replicas in (-1, 1.5, "2", None, True, 10**6, 2**64):
        assert 400 == (await rig.call("POST", path, {"replicas": replicas})).status
    assert 400 == (await rig.call("POST", path, b"")).status
    assert 404 == (await rig.call("POST", f"{path}?namespace=x", {"replicas": 1})).status
    assert 404 == (await rig.call("POST", f"{path}2", {"replicas": 1})).status
    assert 1 == rig.function("fn").replicas


@story()
async def test_provider_routes(rig: Rig) -> None:
    """Info, namespaces, health and metrics have what the gateway needs."""
    info = json.loads((await rig.call("GET", "/system/info")).body)
    assert ("carpool", rig.backend.name) == (info["provider"], info["orchestration"])
    assert {"release": carpool.__version__, "sha": revision()} == info["version"]
    assert b'["openfaas-fn"]' == (await rig.call("GET", "/system/namespaces")).body
    await rig.deploy("fn", ready=False, namespace="a-team")
    assert b'["a-team", "openfaas-fn"]' == (await rig.call("GET", "/system/namespaces")).body
    of_namespace = "/system/namespace/a-team"
    asked: dict[str, Any] = {"name": "a-team", "labels": {"openfaas": "1"}}
    assert {"name": "a-team", "labels": {}, "annotations": {}} == json.loads(
        (await rig.call("GET", of_namespace)).body
    )
    assert 404 == (await rig.call("GET", "/system/namespace/b-team")).status
    for method in ("POST", "PUT", "DELETE"):  # it comes with its first function
        assert 501 == (await rig.call(method, of_namespace, asked)).status
    asked["labels"] = {"openfaas": "1", "pod-security.kubernetes.io/enforce": "privileged"}
    for method in ("POST", "PUT"):
        assert 400 == (await rig.call(method, of_namespace, asked)).status
    assert (200, b"OK") == (await rig.call("GET", "/healthz"))[::2]
    assert (200, b"") == (await rig.call("HEAD", "/healthz"))[::2]
    metrics = (await rig.call("GET", "/metrics")).body.decode()
    route = 'code="200",method="GET",path="/system/info"'
    assert f"provider_http_requests_total{{{route}}} 1.0" in metrics
    assert 'provider_replicas{function_name="fn.a-team"} 1.0' in metrics


@story()
async def test_calls_are_counted_by_function_and_status(rig: Rig) -> None:
    """Calls are counted as the gateway counts them, including errors."""
    await rig.deploy("fn", ready=False, namespace="a-team")
    for path, times in (("", 3), ("/plain", 2), ("/break", 1)):
        for _ in range(times):
            await rig.call("GET", f"/function/fn.a-team{path}")
    metrics = (await rig.call("GET", "/metrics")).body.decode()
    for code, count in (("200", 3.0), ("301", 2.0), ("502", 1.0)):
        series = f'provider_function_invocations_total{{code="{code}",function_name="fn.a-team"}}'
        assert f"{series} {count}\n" in metrics
    await rig.call("DELETE", "/system/functions", {"functionName": "fn", "namespace": "a-team"})
    assert "invocations_total{" not in (await rig.call("GET", "/metrics")).body.decode()


@story()
async def test_unknown_routes_and_methods(rig: Rig) -> None:
    """An unknown route is a 404, and an unsupported method a 405."""
    assert 404 == (await rig.call("GET", "/")).status
    assert 404 == (await rig.call("GET", "/system/telemetry")).status
    assert 404 == (await rig.call("GET", "/system/function/no%20name")).status
    answer = await rig.call("PATCH", "/system/functions")
    assert (405, b"DELETE, GET, POST, PUT") == (answer.status, answer.header(b"allow"))


@story()
async def test_secrets(rig: Rig) -> None:
    """Secrets are created, updated, listed without values and removed; functions see files."""
    path = "/system/secrets"
    raw = {"name": "raw", "rawValue": base64.b64encode(b"\0\1").decode()}
    steps: list[tuple[str, dict[str, Any], int]] = [
        ("POST", {"name": "key", "value": "one"}, 202),
        ("POST", {"name": "key", "value": "one"}, 409),
        ("PUT", {"name": "key", "value": "two"}, 202),
        ("PUT", {"name": "nope", "value": "two"}, 404),
        ("POST", raw, 202),
        ("POST", {"name": "../up", "value": "x"}, 400),
        ("POST", {"name": "a", "namespace": "../up", "value": "x"}, 400),
        ("POST", {"name": "empty"}, 400),
        ("POST", {"name": "bad", "rawValue": "%"}, 400),
        ("POST", {"name": "bad", "rawValue": "ö"}, 400),
        ("POST", {"value": "x"}, 400),
        ("POST", {"name": "key", "value": "x", "namespace": "team"}, 202),
        ("DELETE", {"name": "nope"}, 404),
    ]
    for method, document, status in steps:
        assert status == (await rig.call(method, path, document)).status, document
    listed = json.loads((await rig.call("GET", path)).body)
    names = [{"name": name, "namespace": "openfaas-fn"} for name in ("key", "raw")]
    assert names == listed
    team = json.loads((await rig.call("GET", f"{path}?namespace=team")).body)
    assert [{"name": "key", "namespace": "team"}] == team
    await rig.deploy("fn", secrets=["key"])
    seen = json.loads((await rig.call("GET", "/function/fn")).body)
    assert {"key": "two"} == seen["secrets"]
    assert 202 == (await rig.call("DELETE", path, {"name": "key"})).status
    assert 404 == (await rig.call("DELETE", path, {"name": "key"})).status


@story()
async def test_logs(rig: Rig) -> None:
    """Logs are one JSON object per line, limited by tail, since and instance."""
    await rig.deploy("fn")
    for text in (b"one", b"two", b"x" * 70_000, b"three"):
        await rig.call("POST", "/function/fn/print", text)
    await rig.printed("fn", "three")
    answer = await rig.call("GET", "/system/logs?name=fn&follow=false")
    assert b"application/x-ndjson" == answer.header(b"content-type")
    lines = [json.loads(line) for line in answer.body.splitlines()]
    keys = {"name", "namespace", "instance", "timestamp", "text"}
    assert [keys] * 4 == [set(line) for line in lines]
    instance = rig.instances("fn")[0].name
    assert ("fn", "openfaas-fn", instance) == (
        *(lines[0]["name"], lines[0]["namespace"]),
        lines[0]["instance"],
    )
    assert None is not datetime.fromisoformat(lines[0]["timestamp"]).tzinfo
    assert ["one", "two", "three"] == [line["text"] for line in (*lines[:2], lines[3])]
    assert lines[2]["text"].endswith("x [4464 more bytes]")
    assert ["three"] == await rig.logs("fn", "&tail=1")
    assert 4 == len(await rig.logs("fn", "&tail=0"))
    since = lines[1]["timestamp"].replace("+00:00", "Z")
    assert ["two", "three"] == (await rig.logs("fn", f"&since={since}"))[::2]
    assert [] == await rig.logs("fn", "&instance=other")


@story()
async def test_bad_log_queries(rig: Rig) -> None:
    """Invalid parameters are a 400 or 422, and an unknown function is a 404."""
    await rig.deploy("fn", ready=False)
    cases = [("", 400), ("?name=no", 404), ("?name=fn&tail=x", 422), ("?name=fn&since=x", 422)]
    for query, status in cases:
        assert status == (await rig.call("GET", f"/system/logs{query}")).status
    assert 200 == (await rig.call("GET", "/system/logs?name=fn&follow=maybe")).status


@story()
async def test_following_logs(rig: Rig) -> None:
    """A follower gets the stored lines, then each new line, until the function is removed."""
    await rig.deploy("fn")
    await rig.call("POST", "/function/fn/print", b"before")
    await rig.printed("fn", "before")
    async with rig.client.stream("GET", "/system/logs?name=fn&follow=1&tail=1") as answer:
        chunks = answer.chunks()
        assert "before" == json.loads(await anext(chunks))["text"]
        await rig.call("POST", "/function/fn/print", b"after")
        assert "after" == json.loads(await anext(chunks))["text"]
        await rig.call("DELETE", "/system/functions", {"functionName": "fn"})
        async with asyncio.timeout(HANG_S):
            assert b"" == b"".join([chunk async for chunk in chunks])


@story()
async def test_drain_ends_followers(rig: Rig) -> None:
    """A provider that drains does not wait for clients that follow logs."""
    await rig.deploy("fn")
    async with rig.client.stream("GET", "/system/logs?name=fn&follow=1") as answer:
        async with asyncio.timeout(HANG_S):
            await rig.provider.drain()
        assert b"" == b"".join([chunk async for chunk in answer.chunks()])


def _authorization(user: str, password: str) -> list[tuple[str, str]]:
    token = base64.b64encode(f"{user}:{password}".encode()).decode()
    return [("authorization", f"Basic {token}")]


@story(auth=BasicAuth("admin", "pass:word"))
async def test_basic_auth(rig: Rig) -> None:
    """With credentials set, the API needs them; calls and health do not (`test_access_control`)."""
    for wrong in (
        [],
        _authorization("admin", "pass"),
        _authorization("", ""),
        [("authorization", "Basic %%%")],
        [("authorization", "Bearer x")],
    ):
        answer = await rig.call("GET", "/system/functions", headers=wrong)
        challenge = b'Basic realm="Restricted"'
        assert (401, challenge) == (answer.status, answer.header(b"www-authenticate"))
    good = _authorization("admin", "pass:word")
    assert 200 == (await rig.call("GET", "/system/functions", headers=good)).status
    assert 200 == (await rig.call("GET", "/healthz")).status
    assert 503 == (await rig.call("GET", "/function/none")).status


@story(calls=CALLS)
async def test_function_network_listener_only_forwards_calls(rig: Rig) -> None:
    """The listener for the functions' network forwards calls and has no other route."""
    await rig.deploy("fn")
    client = Pool(CALLS)
    answer = await client.request("GET", "/function/fn/path", timeout_s=HANG_S)
    assert (200, "/path") == (answer.status, json.loads(answer.body)["target"])
    known = ("/system/functions", "/system/secrets", "/metrics", "/healthz")
    for path in (*known, "/", "/function/fn/metrics"):
        assert 404 == (await client.request("GET", path)).status, path
    document = {"service": "more", "image": IMAGE}
    body = json.dumps(document).encode()
    assert 404 == (await client.request("POST", "/system/functions", (), body)).status
    client.close()
    assert ["fn"] == [each.deployment.service for each in rig.orchestrator.all()]
