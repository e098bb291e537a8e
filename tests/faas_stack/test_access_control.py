"""Tests of the provider's access control against web pages that its user may visit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import uvloop

from carpool.basic_auth import Credentials
from faas_stack.provider.basic_auth_check import BasicAuth
from tests.faas_stack.rig import IMAGE, ProcessStage, provider, story
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from pathlib import Path

    from carpool.http.client import Response
    from tests.faas_stack.rig import Rig


ADMIN = Credentials("admin", "pass:word")
DOCUMENT = json.dumps({"service": "fn", "image": IMAGE}).encode()
JSON = ("content-type", "application/json")
PAGE = ("origin", "http://evil.example")
REBOUND = ("host", "evil.example:8080")
SYSTEM = (
    ("GET", "/system/functions"),
    ("GET", "/system/function/fn"),
    ("GET", "/system/info"),
    ("GET", "/system/namespaces"),
    ("GET", "/system/secrets"),
    ("GET", "/system/logs?name=fn"),
    ("GET", "/metrics"),
    ("GET", "/metrics/targets"),
    ("GET", "/function/fn/metrics"),
    ("GET", "/%73ystem/functions"),
    ("POST", "/system/functions"),
    ("PUT", "/system/functions"),
    ("DELETE", "/system/functions"),
    ("OPTIONS", "/system/functions"),
    ("POST", "/system/scale-function/fn"),
    ("POST", "/system/secrets"),
    ("POST", "/%73ystem/functions"),
    ("POST", "/nothing"),
)


async def sent(
    rig: Rig, method: str, path: str, *headers: tuple[str, str], body: bytes = b""
) -> Response:
    """Send a request with only these headers."""
    return await rig.client.request(method, path, headers, body, HANG_S)


@pytest.mark.parametrize("header", [PAGE, REBOUND, ("origin", "null")], ids=str)
@pytest.mark.parametrize("pair", [ADMIN, None], ids=["credentials", "no-auth"])
def test_foreign_pages_may_only_call_functions(
    tmp_path: Path, header: tuple[str, str], pair: Credentials | None
) -> None:
    """Foreign pages may only call functions, even with credentials that a browser remembers."""

    async def attack() -> None:
        auth = BasicAuth(*pair) if pair else None
        shown = [pair.header] if pair else []
        async with provider(ProcessStage(), tmp_path, auth=auth) as rig:
            for method, path in SYSTEM:
                body = DOCUMENT if method in {"POST", "PUT"} else b""
                answer = await sent(rig, method, path, header, JSON, *shown, body=body)
                assert 403 == answer.status, (method, path)
                assert b"--allow-host" in answer.body
                assert answer.header(b"access-control-allow-origin") is None
            assert 403 == (await sent(rig, "GET", "/healthz", header)).status
            assert b"[]" == (await sent(rig, "GET", "/system/functions", *shown)).body
            assert 503 == (await sent(rig, "POST", "/function/fn", header, body=b"x")).status

    uvloop.run(attack())


@story(ProcessStage(), auth=BasicAuth(*ADMIN))
async def test_only_calls_and_health_are_allowed_without_credentials(rig: Rig) -> None:
    """Without credentials only calls and health are allowed; even unknown routes are refused."""
    for method, path in SYSTEM:
        answer = await sent(rig, method, path, JSON, body=DOCUMENT)
        assert 401 == answer.status, (method, path)
        assert b'Basic realm="Restricted"' == answer.header(b"www-authenticate")
    assert 200 == (await sent(rig, "GET", "/healthz")).status
    assert b"[]" == (await sent(rig, "GET", "/system/functions", ADMIN.header)).body
    await rig.deploy("fn", headers=[ADMIN.header])
    assert 200 == (await sent(rig, "POST", "/function/fn", body=b"x")).status
    assert 401 == (await sent(rig, "GET", "/function/fn/metrics")).status
    assert 401 == (await sent(rig, "GET", "/function/fn/metrics?x")).status
    assert 200 == (await sent(rig, "GET", "/function/fn/metrics", ADMIN.header)).status
    assert 200 == (await sent(rig, "GET", "/function/fn/metrics/x")).status
    assert b'"fn.openfaas-fn"' in (await sent(rig, "GET", "/metrics", ADMIN.header)).body


@story(ProcessStage(), auth=BasicAuth(*ADMIN))
async def test_queued_calls_are_refused_with_the_reason(rig: Rig) -> None:
    """A queued call, sent without credentials, is not refused for their lack."""
    answer = await sent(rig, "POST", "/async-function/fn", body=b"x")
    assert 501 == answer.status
    assert b"only by OpenFaaS's gateway; expected '/function/fn'" in answer.body


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([JSON], 202),
        ([("content-type", "Application/JSON; charset=utf-8")], 202),
        ([("content-type", "text/plain")], 415),  # what a page may send without being asked
        ([("content-type", "text/plain;application/json")], 415),
        ([("content-type", "application/x-www-form-urlencoded")], 415),
        ([("content-type", "multipart/form-data; boundary=x")], 415),
        ([("content-type", "")], 415),
        ([], 202),  # the gateway's own calls have none
        ([("sec-fetch-site", "none")], 415),  # a browser's Blob has none either
    ],
    ids=str,
)
def test_changes_must_be_json(tmp_path: Path, headers: list[tuple[str, str]], status: int) -> None:
    """A change is sent as JSON, which browsers do not send to other sites without their consent."""

    async def change() -> None:
        async with provider(ProcessStage(), tmp_path) as rig:
            answer = await sent(rig, "POST", "/system/functions", *headers, body=DOCUMENT)
            assert status == answer.status
            assert (415 == status) == (b"expected application/json" in answer.body)
            own = ("origin", f"http://{rig.provider.address}")
            answer = await sent(rig, "PUT", "/system/functions", own, body=DOCUMENT)
            assert 415 == answer.status

    uvloop.run(change())


@story(ProcessStage())
async def test_large_documents_are_refused(rig: Rig) -> None:
    """Large documents are refused, so that calls do not wait while one is read."""
    large = json.dumps({"service": "fn", "image": IMAGE, "labels": {"a": "b" * 2**21}}).encode()
    assert 413 == (await sent(rig, "POST", "/system/functions", JSON, body=large)).status
    await rig.deploy("fn")
    assert 200 == (await sent(rig, "POST", "/function/fn", body=large)).status


@story(ProcessStage(), hosts=("carpool.lan",))
async def test_host_names_from_options_are_accepted(rig: Rig) -> None:
    """A host name from the options is a name of the provider, also for its pages."""
    named, page = ("host", "carpool.lan"), ("origin", "https://carpool.lan")
    assert 200 == (await sent(rig, "GET", "/system/functions", named)).status
    assert 200 == (await sent(rig, "GET", "/system/functions", page)).status
    assert 403 == (await sent(rig, "GET", "/system/functions", ("host", "a.carpool.lan"))).status
    metrics = (await sent(rig, "GET", "/metrics")).body.decode()
    assert 'provider_http_requests_total{code="403",method="GET",path="refused"} 1.0' in metrics
