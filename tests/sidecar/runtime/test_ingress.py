"""What the sidecar reads from requests before it queues them."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib
from typing import Any

import pytest

from carpool.errors import BadRequest
from carpool.http.exchange import Exchange, KnownHead
from carpool.settings import FunctionSettings
from sidecar.runtime import body_parameters, scaler_membership
from sidecar.runtime.ingress import Ingress

TARGET = "/v2/models/m/infer"


def exchange(headers: dict[str, str], **parameters: object) -> Exchange:
    """Return an inference request as read from a connection."""
    pairs = tuple((name.encode(), text.encode()) for name, text in headers.items())
    found = Exchange("POST", TARGET, pairs)
    found.body = json.dumps({"inputs": [], "parameters": parameters}).encode()
    return found


@pytest.mark.parametrize(
    ("headers", "parameters", "waits_s"),
    [
        pytest.param({}, {}, 0.2, id="as usual"),
        pytest.param({"x-carpool-accuracy": "0.5"}, {}, 0.2, id="another need"),
        pytest.param({"x-carpool-latency": "5s"}, {}, 5.0, id="header"),
        pytest.param({}, {"carpool_latency": "5s"}, 5.0, id="parameter"),
        pytest.param({"x-carpool-accuracy": "0.5"}, {"carpool_latency": "5s"}, 5.0, id="both"),
        pytest.param({"x-carpool-latency": "1s"}, {"carpool_latency": "5s"}, 1.0, id="twice"),
        pytest.param({"x-carpool-latency": "5s", "x-timeout": "3s"}, {}, 3.0, id="timeout"),
        pytest.param({}, {"timeout": 50_000}, 0.05, id="Triton's timeout"),
        pytest.param({"x-timeout": "20ms"}, {"timeout": 50_000}, 0.02, id="two timeouts"),
        pytest.param({}, {"timeout": 0}, 0.2, id="no timeout"),
    ],
)
def test_requested_latency_replaces_objective(
    headers: dict[str, str], parameters: dict[str, Any], waits_s: float
) -> None:
    """The shortest latency that a request names replaces the objective, and a timeout limits it."""
    ingress = Ingress(FunctionSettings.from_labels({"com.carpool.slo": "200ms"}, {}), lambda: 0.0)
    request = ingress.read(exchange(headers, **parameters))
    assert pytest.approx(waits_s) == request.due
    assert pytest.approx(waits_s * 15 / 16) == request.deadline  # the rest is for the way back


APPS = '[{"name": "web", "slo": "90ms"}]'


@pytest.mark.parametrize("klass", ["interactive", "batch"])
@pytest.mark.parametrize("name", ["wbe", "", "a b", "w" * 64, "latency=0.001"])
def test_unknown_application_is_refused_in_either_class(klass: str, name: str) -> None:
    """Where applications are set, a request that names another one is refused."""
    ingress = Ingress(FunctionSettings.from_env({"carpool_apps": APPS}), lambda: 0.0)
    with pytest.raises(BadRequest, match="expected one of web"):
        ingress.read(exchange({"x-carpool-app": name, "x-carpool-class": klass}))


@pytest.mark.parametrize("klass", ["interactive", "batch"])
@pytest.mark.parametrize(
    ("apps", "name", "counted_as"),
    [
        (APPS, "web", "web"),
        (APPS, "*", "*"),
        ("[]", "web", "*"),
        ("[]", "", "*"),
        ("[]", "a b", "*"),
        ("[]", "w" * 64, "*"),
        ("[]", "latency=0.001", "*"),
    ],
)
def test_request_is_counted_under_a_name_of_the_settings(
    apps: str, name: str, counted_as: str, klass: str
) -> None:
    """A name that the caller made up is kept for plans and logs, but not counted."""
    ingress = Ingress(FunctionSettings.from_env({"carpool_apps": apps}), lambda: 0.0)
    request = ingress.read(exchange({"x-carpool-app": name, "x-carpool-class": klass}))
    assert (name, counted_as) == (request.app, request.counted_as)


def test_called_function_is_passed_on_and_does_not_prevent_merging() -> None:
    """A handler gets the name of the called function; requests with different ones are merged."""
    ingress = Ingress(FunctionSettings(wire="oip"), lambda: 0.0)
    direct, called = (
        ingress.read(exchange(headers)) for headers in ({}, {"x-carpool-called": "net"})
    )
    assert b"x-carpool-called: net\n" in called.payload.head
    assert direct.payload.template.agreed == called.payload.template.agreed


@pytest.mark.parametrize("timeout", [-1, 1.5, True, "1s", 2**63, 10**400])
def test_timeout_that_is_not_a_number_of_microseconds_is_refused(timeout: Any) -> None:
    """A timeout that is not a number of microseconds is refused, not ignored."""
    ingress = Ingress(FunctionSettings.from_labels({}, {}), lambda: 0.0)
    with pytest.raises(BadRequest, match=r"the parameter timeout is .*microseconds"):
        ingress.read(exchange({}, timeout=timeout))


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
@pytest.mark.parametrize("with_tensors", [True, False])
def test_parameters_are_found_in_a_compressed_body(coding: str, with_tensors: bool) -> None:  # noqa: FBT001
    """Parameters in a compressed body are found, even before large binary tensors."""
    ingress = Ingress(FunctionSettings.from_labels({}, {}), lambda: 0.0)
    found = exchange({"content-encoding": coding}, timeout=50_000, carpool_accuracy=0.5)
    if with_tensors:
        length = b"%d" % len(found.body)
        found.headers = (*found.headers, (b"inference-header-content-length", length))
        found.body += bytes(body_parameters.PLAIN_MAX)
    found.body = (gzip if coding == "gzip" else zlib).compress(found.body)
    request = ingress.read(found)
    assert pytest.approx(0.05) == request.due
    assert request.demand is not None
    assert 0.5 == request.demand.accuracy


def test_decompression_stops_at_limit() -> None:
    """Decompression stops at its limit, and a body that is not gzip stays as it is."""
    bomb = gzip.compress(bytes(2 * body_parameters.PLAIN_MAX))
    assert bytes(body_parameters.PLAIN_MAX) == body_parameters.plain(bomb, b"gzip", b"")
    assert b"text" == body_parameters.plain(b"text", b"gzip", b"")
    assert bomb == body_parameters.plain(bomb, b"", b"")


@pytest.mark.parametrize("coding", ["gzip", "identity"])
def test_json_length_with_thousands_of_digits_is_ignored(coding: str) -> None:
    """A JSON length of thousands of digits is ignored, and the parameters are still found."""
    ingress = Ingress(FunctionSettings.from_labels({}, {}), lambda: 0.0)
    length = {"inference-header-content-length": "9" * 5000}
    found = exchange({"content-encoding": coding, **length}, timeout=50_000)
    found.body = gzip.compress(found.body) if coding == "gzip" else found.body
    assert pytest.approx(0.05) == ingress.read(found).due


@pytest.mark.parametrize("name", ["target", "accept", "content-type", "x-carpool-variant"])
def test_caches_of_request_heads_stay_small(name: str) -> None:
    """The caches of request heads stay small, however large and varied the heads are."""
    ingress = Ingress(FunctionSettings.from_labels({}, {}), lambda: 0.0)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(100):
            large = f"{number:060000}"
            found = exchange({} if name == "target" else {name: large})
            found.target += f"?{large}" * (name == "target")
            ingress.read(found)
        assert tracemalloc.get_traced_memory()[0] - before < 600_000  # as two of them
    finally:
        tracemalloc.stop()


def test_shortest_of_objective_timeout_and_grpc_deadline_counts() -> None:
    """The shortest of the objective, X-Timeout and the deadline of a gRPC call counts."""
    ingress = Ingress(FunctionSettings.from_env({"carpool_slo": "1s"}), lambda: 0.0)
    for headers, budget_s in (((), 0.5), (((b"x-timeout", b"250ms"),), 0.25)):
        call = Exchange("POST", TARGET, headers)
        call.timeout_s = 0.5
        request = ingress.read(call)
        assert budget_s == request.due
        assert budget_s == scaler_membership._timeout_s(request)  # while there is no instance, too


@pytest.mark.parametrize("timeout", ["20ms", "soon"])
def test_repeated_head_is_read_as_the_first_time(timeout: str) -> None:
    """What is derived from a head that repeats holds for it alone; a bad one is refused again."""
    ingress = Ingress(FunctionSettings.from_env({"carpool_slo": "200ms"}), lambda: 0.0)
    pairs = ((b"x-timeout", timeout.encode()), (b"x-call-id", b"7"))
    heads = [KnownHead("POST", TARGET, pairs, 0), KnownHead("POST", TARGET, (), 0)]
    told = []
    for number in range(6):
        known_head = heads[number % 2]
        found = Exchange(known_head.method, known_head.target, known_head.headers)
        found.known_head = known_head
        try:
            request = ingress.read(found)
            told.append((request.due, request.payload.head, request.payload.call_id))
        except BadRequest as error:
            told.append((0.0, str(error).encode(), ""))
    assert told[:2] * 3 == told
    assert told[0] != told[1]


def test_own_headers_of_calls_are_read_beside_a_repeated_head() -> None:
    """A call's own headers have the same effect as if its head did not repeat."""
    ingress = Ingress(FunctionSettings.from_env({"carpool_slo": "200ms"}), lambda: 10.05)
    shared = ((b"x-timeout", b"90ms"), (b"host", b"x"))
    head = KnownHead("POST", TARGET, shared)
    for number in range(3):
        stamp = b"%d" % (10_000_000_000 + 10_000_000 * number)
        own = (b"x-call-id", b"%d" % number), (b"x-forwarded-for", b"y"), (b"x-start-time", stamp)
        whole = Exchange("POST", TARGET, shared + own)
        divided = Exchange("POST", TARGET, shared + own)
        divided.known_head, divided.own_headers = head, own
        requests = [ingress.read(whole), ingress.read(divided)]
        assert 1 == len({(r.due, r.deadline, r.size_bytes, r.payload.head) for r in requests})
        assert [str(number)] * 2 == [r.payload.call_id for r in requests]
        assert requests[0].payload.head.endswith(b"\nx-call-id: %d\n" % number)
        assert pytest.approx(0.05 - 0.01 * number) == requests[1].payload.spent_s
