"""Traces of a real sidecar as a collector receives them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.docs.snippets import take_one
from tests.sidecar.runtime.conftest import ROOT
from tests.sidecar.runtime.plain_server import plain_server
from tests.sidecar.runtime.test_merged_server import document, predict
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.gate import Gate
    from tests.sidecar.runtime.conftest import Start

SHOWN = take_one("docs/sidecar.md", "^sidecar_traces=")
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, NOT_SAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"


class Seen(NamedTuple):
    """Span with its identifiers in hexadecimal."""

    name: str
    trace: str
    id: str
    parent: str
    links: list[str]
    attributes: dict[str, Any]
    start: int
    end: int
    failed: bool


class Collector:
    """Server that receives spans over HTTP."""

    def __init__(self) -> None:
        self.spans: list[Seen] = []
        self.services: set[str] = set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.took(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}/v1/traces"

    def took(self, body: bytes) -> None:
        """Record the spans of one export."""
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            about = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
            self.services.add(about["service.name"])
            for scope in resource.scope_spans:
                self.spans += map(seen, scope.spans)

    def named(self, name: str) -> list[Seen]:
        """Return the spans of that name by start time."""
        return sorted((s for s in self.spans if s.name == name), key=lambda span: span.start)


def seen(span: Any) -> Seen:
    """Return a span as it was exported."""
    values = {
        pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in span.attributes
    }
    return Seen(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        [link.span_id.hex() for link in span.links],
        values,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.status.code == 2,
    )


@pytest.fixture
def collector() -> Iterator[Collector]:
    """Run a collector on a free port."""
    made = Collector()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join(HANG_S)
    made.server.server_close()


def test_a_batch_is_linked_to_its_members(sidecar: Start, collector: Collector, gate: Gate) -> None:
    """Request spans are in their callers' traces and linked to the batch with the handler span."""

    async def run() -> None:
        env = {"sidecar_traces": collector.endpoint, "sidecar_trace_share": "0"}
        async with sidecar(OPENFAAS_NAME="fn", **env) as running:
            parents = [f"00-{n:032x}-{PARENT}-01" for n in (1, 2)]
            answers = await running.together(
                gate,
                *(running.ask("ok", ("traceparent", parent)) for parent in parents),
                running.ask("ok", ("traceparent", NOT_SAMPLED)),
                running.ask("ok"),
            )
            assert [200] * 4 == [answer.status for answer in answers]

    asyncio.run(run())
    first, second = sorted(collector.named("POST request"), key=lambda span: span.trace)
    assert [f"{n:032x}" for n in (1, 2)] == [first.trace, second.trace]
    assert PARENT == first.parent == second.parent
    (batch,) = collector.named("batch")
    assert {first.id, second.id} == set(batch.links)
    assert [batch.id] == first.links == second.links
    assert (4, "in_time", 200) == (
        batch.attributes["carpool.requests"],
        first.attributes["carpool.outcome"],
        first.attributes["http.response.status_code"],
    )
    waits = {span.parent: span for span in collector.named("wait")}
    assert {first.id, second.id} == waits.keys()
    (handler,) = collector.named("handler")
    assert batch.id == handler.parent
    for member in (first, second):
        wait = waits[member.id]
        assert member.start <= wait.start <= wait.end <= handler.end <= member.end + 1_000_000
    assert {"fn"} == collector.services


@pytest.mark.slow
def test_failed_requests_and_batches_have_error_spans(sidecar: Start, collector: Collector) -> None:
    """Spans of failed and expired requests and of failed batches are errors."""

    async def run() -> None:
        name, _, shown = SHOWN.strip().partition("=")
        endpoint = shown.replace("127.0.0.1:4318", collector.endpoint.split("/")[2])
        env = {name: endpoint, "sidecar_trace_share": "1"}
        async with sidecar(**env) as running:
            assert 502 == (await running.ask("fail")).status
            assert 504 == (await running.ask("ok", ("x-timeout", "1ns"))).status
            assert 422 == (await running.ask("ok", ("x-carpool-accuracy", "1"))).status
            assert 200 == (await running.ask("ok")).status

    asyncio.run(run())
    outcomes = [s.attributes["carpool.outcome"] for s in collector.named("POST request")]
    assert ["failed", "expired", "refused", "in_time"] == outcomes
    assert [True, True, True, False] == [span.failed for span in collector.named("POST request")]
    assert [True, False] == [span.failed for span in collector.named("batch")]


@pytest.mark.slow
def test_trace_context_is_passed_to_server(
    sidecar: Start, collector: Collector, gate: Gate, tmp_path: Path
) -> None:
    """The server gets the request's span as parent, or the batch's for a merged request."""
    env = {"carpool_wire": "v1", "sidecar_traces": collector.endpoint}

    async def run(server: str) -> list[str]:
        async with sidecar(sidecar_upstreams=server, sidecar_trace_share="1", **env) as running:
            alone = document(await predict(running, "trace"))["predictions"]
            merged = await running.together(gate, *[predict(running, "trace") for _ in range(2)])
            found = [document(answer)["predictions"] for answer in merged]
            assert found[0] == found[1]
            return [*alone, *found[0]]

    with plain_server("tests.services.flask_model:app", tmp_path) as server:
        alone, merged = asyncio.run(run(server))
    requests = {span.id: span for span in collector.named("POST request")}
    assert alone.split("-")[2] in requests
    assert requests[alone.split("-")[2]].trace == alone.split("-")[1]
    batches = {span.id for span in collector.named("batch") if len(span.links) == 2}
    assert {merged.split("-")[2]} == batches


@pytest.mark.slow
def test_unsampled_request_is_not_traced(sidecar: Start, collector: Collector) -> None:
    """A request whose caller does not sample it is not traced, whatever the configured share."""

    async def run() -> None:
        async with sidecar(sidecar_traces=collector.endpoint, sidecar_trace_share="1") as running:
            assert 200 == (await running.ask("ok", ("traceparent", NOT_SAMPLED))).status

    asyncio.run(run())
    assert [] == collector.spans


def test_sidecar_without_tracing_does_not_import_packages() -> None:
    """Without tracing the sidecar does not import its packages, as they belong to an extra."""
    code = "import sys, sidecar.app; sys.exit('opentelemetry' in sys.modules)"
    env = {"PYTHONPATH": str(ROOT)}
    assert 0 == subprocess.run([sys.executable, "-c", code], env=env, check=False).returncode


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        ("http://127.0.0.1:1/v1/traces", 'pip install "carpool[traces]"'),
        ("127.0.0.1:4318", "sidecar_traces = '127.0.0.1:4318': expected a URL"),
    ],
)
def test_error_names_missing_packages_and_invalid_endpoint(
    endpoint: str, said: str, tmp_path: Path
) -> None:
    """Missing packages and an invalid endpoint are errors that say how to fix them."""
    code = "import sys; sys.modules['opentelemetry'] = None; from sidecar.app import main; "
    env = {"PYTHONPATH": str(ROOT), "sidecar_traces": endpoint, "sidecar_listen": "unix:s"}
    done = subprocess.run(
        [sys.executable, "-c", f"{code}sys.exit(main([]))"],
        env={**env, "sidecar_upstreams": "127.0.0.1:1"},
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert 0 != done.returncode
    assert said in done.stderr
