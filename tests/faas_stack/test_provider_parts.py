"""Tests of the provider's parts that need no process: documents, logs, rollouts and calls."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from dataclasses import dataclass
from unittest.mock import Mock

import pytest
import uvloop

from carpool.errors import BadRequest, ConfigError
from carpool.http.call_frames import content, split
from carpool.http.exchange import Exchange
from faas_stack.provider.call import Call
from faas_stack.provider.call_template import CallTemplates
from faas_stack.provider.deployment import Deployment, read_object, split_name
from faas_stack.provider.local.replica_set import rollout_step
from faas_stack.provider.logs import LogRing, last_words
from faas_stack.provider.replica import Replica
from tests.waiting import wait_until_async

# -- documents --------------------------------------------------------------------------------


def test_deployment_round_trip() -> None:
    """Every field of a FunctionDeployment is read and returned unchanged."""
    document = {
        "service": "fn",
        "image": "fn:1",
        "namespace": "team",
        "envProcess": "python x.py",
        "envVars": {"a": "1"},
        "constraints": ["gpu"],
        "secrets": ["s"],
        "labels": {"com.carpool.slo": "200ms"},
        "annotations": {"topic": "cats"},
        "limits": {"memory": "1Gi", "nvidia.com/gpu": "1"},
        "requests": {"cpu": "1"},
        "readOnlyRootFilesystem": True,
    }
    deployment = Deployment.from_json(json.dumps({**document, "registryAuth": "x"}).encode())
    assert 0.2 == deployment.settings.slo_s
    expected = {key: value for key, value in document.items() if key != "service"}
    assert expected == deployment.to_json()


def test_deployment_defaults() -> None:
    """Null and missing fields are the same, and empty optional ones are omitted."""
    body = b'{"service": "fn", "image": "a", "labels": null, "envVars": null, "limits": null}'
    shown = Deployment.from_json(body).to_json()
    assert {
        "image": "a",
        "namespace": "openfaas-fn",
        "labels": {},
        "annotations": {},
    } == shown


def test_environment_overrides_labels() -> None:
    """A setting in the function's environment overrides the label of the same meaning."""
    document = {
        "service": "fn",
        "image": "a",
        "labels": {"com.carpool.batch.max": "8", "com.carpool.slo": "1s"},
        "envVars": {"carpool_batch_max": "4"},
    }
    settings = Deployment.from_json(json.dumps(document).encode()).settings
    assert (4, 1.0) == (settings.batch_max, settings.slo_s)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "the body is not JSON"),
        (b"{", "the body is not JSON"),
        (b"[]", "the body must be a JSON object, not list"),
        (b"\xff", "the body is not JSON"),
    ],
)
def test_body_that_is_not_an_object_is_refused(body: bytes, expected: str) -> None:
    """A body that is not a JSON object is refused."""
    with pytest.raises(BadRequest, match=expected):
        Deployment.from_json(body)


def test_deployment_problems_are_reported_together() -> None:
    """All invalid fields of a deployment are reported together, by their names in the document."""
    document = {
        "service": "Not OK",
        "image": 3,
        "namespace": "../etc",
        "envVars": {"a": 1},
        "secrets": "s",
        "labels": {"com.carpool.slo": "fast"},
        "readOnlyRootFilesystem": "yes",
    }
    with pytest.raises(ConfigError) as caught:
        Deployment.from_json(json.dumps(document).encode())
    assert {
        *("service", "image", "namespace", "envVars.a", "secrets"),
        *("com.carpool.slo", "readOnlyRootFilesystem"),
    } == {problem.name for problem in caught.value.problems}


@pytest.mark.parametrize(
    ("name", "namespace", "expected"),
    [
        ("fn", "", ("fn", "openfaas-fn")),
        ("fn", "team", ("fn", "team")),
        ("fn.team", "", ("fn", "team")),
        ("fn.team", "other", ("fn", "team")),
        ("a.b.c", "", ("a.b", "c")),
    ],
)
def test_last_dot_separates_name_and_namespace(
    name: str, namespace: str, expected: tuple[str, str]
) -> None:
    """A namespace in the name overrides one given separately."""
    assert expected == split_name(name, namespace, "openfaas-fn")


# -- logs -------------------------------------------------------------------------------------


def test_ring_is_bounded_in_lines_and_bytes() -> None:
    """The ring drops the oldest lines, never the newest."""
    ring = LogRing(lines=3, size_bytes=10)
    for text in ("a", "b", "c", "d"):
        ring.add("i", text)
    assert ["b", "c", "d"] == [line.text for line in ring.since(0)]
    ring.add("i", "123456789")
    assert ["d", "123456789"] == [line.text for line in ring.since(0)]
    assert ["123456789"] == [line.text for line in ring.since(4)]
    assert [] == ring.since(ring.next)


def test_handler_reason_comes_before_watchdog_lines() -> None:
    """The handler's own reason comes first, as it explains more than the watchdog's later lines."""
    ring = LogRing()
    for text in ("before", "handler: cannot start: no model", "  a line", "it has terminated"):
        ring.add("fn-1", text)
    lines = ring.since(0)
    told = last_words("fn keeps failing", "it has terminated", lines)
    expected = "fn keeps failing (handler: cannot start: no model); its last output:\n"
    assert f"{expected}    a line\n  it has terminated" == told
    assert "fn is late (why); its last output:\n  before" == last_words(
        "fn is late", "why", lines[:1]
    )
    assert "fn is late" == last_words("fn is late", "", [])


def test_ring_wakes_its_readers() -> None:
    """Waiting ends with the next line, and always once the ring is closed."""

    async def play() -> None:
        ring = LogRing()
        ring.add("i", "old")
        await ring.more(0)
        ring.close()
        await ring.more(1)

    uvloop.run(play())


def test_ring_forgets_cancelled_readers() -> None:
    """Cancelled readers leave nothing behind, even if no line comes."""

    def waiting() -> int:
        gc.collect()  # what other tests have left behind is not counted
        return sum(isinstance(each, asyncio.Future) for each in gc.get_objects())

    async def come_and_go(ring: LogRing) -> None:
        readers = [asyncio.ensure_future(ring.more(0)) for _ in range(100)]
        await asyncio.sleep(0)
        assert waiting() >= 200  # each reader's task, and what it waits for
        for reader in readers:
            reader.cancel()
        await asyncio.wait(readers)

    async def play() -> None:
        ring = LogRing()
        before = waiting()
        await come_and_go(ring)
        await asyncio.sleep(0)
        assert before == waiting()

    uvloop.run(play())


# -- rollout ----------------------------------------------------------------------------------


@dataclass
class Standing:
    """An instance with a fixed state."""

    ready: bool
    name: str = "i"
    address: str = "unix:/nowhere"
    failing: bool = False
    reason: str = ""
    confined: str = ""
    silent: bool = False
    repeatable: bool = False
    takes_calls: bool = False

    def suspect(self) -> None:
        self.ready = False


def replicas(described: str) -> list[Replica]:
    """Return replicas described by letters.

    ``o`` and ``n`` are replicas of the old and new revision, in upper case if ready; ``-`` follows
    one that is draining.
    """
    made = []
    for letter in described.replace("-", ""):
        replica = Replica(Standing(letter.isupper()), "on".index(letter.lower()))
        made.append(replica)
    if "-" in described:
        made[described.index("-") - 1].draining = True
    return made


@pytest.mark.parametrize(
    ("running", "want", "start", "drain"),
    [
        pytest.param("", 3, 3, "", id="first start: all at once"),
        pytest.param("N", 3, 2, "", id="scale up"),
        pytest.param("NNN", 1, 0, "NN", id="scale down"),
        pytest.param("nNN", 2, 0, "n", id="scale down takes the unready first"),
        pytest.param("NNN", 0, 0, "NNN", id="scale to zero"),
        pytest.param("N-N", 2, 1, "", id="a draining replica does not count"),
        pytest.param("OO", 2, 1, "", id="rollout starts one more"),
        pytest.param("OOn", 2, 0, "", id="rollout waits until it is ready"),
        pytest.param("OON", 2, 1, "O", id="then takes one old away for the next"),
        pytest.param("ON", 2, 1, "", id="which is started"),
        pytest.param("ONN", 2, 0, "O", id="until all are new"),
        pytest.param("oON", 2, 1, "o", id="unready old ones go first"),
        pytest.param("O", 0, 0, "O", id="a rollout to nothing"),
        pytest.param("On", 1, 0, "", id="a new one that never gets ready costs nothing"),
    ],
)
def test_rollout_step(running: str, want: int, start: int, drain: str) -> None:
    """A step starts and drains replicas by what runs and what is wanted."""

    async def decide() -> tuple[int, str]:
        count, drained = rollout_step(replicas(running), 1, want)
        letters = ["on"[r.revision] for r in drained]
        pairs = zip(letters, drained, strict=True)
        return count, "".join(x.upper() if r.ready else x for x, r in pairs)

    assert (start, drain) == uvloop.run(decide())


@pytest.mark.parametrize(
    ("running", "want", "start", "drain"),
    [
        pytest.param("O", 1, 1, "O", id="the only one goes first"),
        pytest.param("OO", 2, 1, "O", id="one of two goes first"),
        pytest.param("OOn", 2, 0, "O", id="also for one that waits for a seat"),
        pytest.param("On", 2, 0, "", id="the other stays until that is ready"),
        pytest.param("oO", 2, 1, "o", id="an unready one goes before a ready one"),
        pytest.param("ON", 2, 1, "O", id="then it goes, too"),
        pytest.param("n", 1, 0, "", id="nothing else is taken away"),
        pytest.param("N", 2, 1, "", id="scaling up does not ask: the start waits"),
    ],
)
def test_rollout_step_on_a_full_machine(running: str, want: int, start: int, drain: str) -> None:
    """On a full machine an old replica makes room for its successor, one at a time."""

    async def decide() -> tuple[int, str]:
        count, drained = rollout_step(replicas(running), 1, want, full=True)
        letters = ["on"[r.revision] for r in drained]
        pairs = zip(letters, drained, strict=True)
        return count, "".join(x.upper() if r.ready else x for x, r in pairs)

    assert (start, drain) == uvloop.run(decide())


# -- calls ------------------------------------------------------------------------------------


def test_large_headers_are_not_cached() -> None:
    """Large headers are not cached, so that callers cannot fill the memory."""
    templates = CallTemplates()
    for headers in ((b"x-" + b"a" * 5000, b""), (b"x-a", b"a" * 5000), (b"x-a", b"b")):
        templates.split(Exchange("GET", "/function/fn", (headers,)))
    assert [((b"x-a", b"b"),)] == [headers for *_, headers in templates._known]


@pytest.mark.parametrize(
    "sent", [{}, {"x-call-id": "1", "x-forwarded-for": "10.0.0.1", "x-start-time": "7"}]
)
def test_own_headers_of_call_are_in_the_usual_order(sent: dict[str, str]) -> None:
    """What provider or gateway adds to a call is in the order in which sidecars read it fast."""

    class Remote(Exchange):
        peer = "10.0.0.1:4000"

    exchange = Remote("POST", "/function/fn", ())
    exchange.headers = tuple([(name.encode(), value.encode()) for name, value in sent.items()])
    call = Call(exchange, *CallTemplates().split(exchange))
    call.sent_to(Mock(), 60.0, 0.0)
    own, body, usual = split(memoryview(content(call.own_lines, b"body")))
    assert (b"body", True) == (body, usual)
    assert [b"x-call-id", b"x-forwarded-for", b"x-start-time"] == [name for name, _ in own]


def test_calls_of_one_iteration_have_one_start() -> None:
    """A call that is read late in an iteration of the event loop has waited since its beginning."""
    template, own = CallTemplates().split(Exchange("POST", "/function/fn", ()))
    calls = [Call(Mock(peer="", received=0.0), template, own) for _ in range(3)]
    for call, now in zip(calls, (1.0, 1.0, 2.0), strict=True):
        call.sent_to(Mock(), 60.0, now)
    starts = [dict(split(memoryview(content(call.own_lines, b"")))[0]) for call in calls]
    first, second, later = [int(pairs[b"x-start-time"]) for pairs in starts]
    assert first == second != later


def test_replica_that_stops_reading_gets_no_bundled_calls() -> None:
    """A replica that stops reading gets no more bundled calls until it has a new connection.

    With a connection of its own, a cancelled call leaves nothing behind.
    """

    async def play() -> None:
        over = asyncio.Event()

        async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
            await over.wait()
            writer.close()

        server = await asyncio.start_server(deaf, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        replica = Replica(Standing(ready=True, address=f"{host}:{port}", takes_calls=True), 1)
        calls, body = replica.calls, bytes(64 * 1024)
        assert calls
        for _ in range(600):  # more than sockets hold
            if replica.calls is None:
                break
            sent = calls.send(b"POST /\n", b"", body, Mock())
            await wait_until_async(lambda: calls._connection is not None)
            await asyncio.sleep(0)
            calls.cancel(sent)
        assert None is replica.calls
        replica.close()
        over.set()
        server.close()
        await wait_until_async(lambda: replica.calls is not None)  # the connection is no more

    uvloop.run(play())


def test_long_name_above_many_values_costs_no_multiple_of_its_length() -> None:
    """A body of 20 kB does not become a path of 10 kB for each of 5000 values."""
    body = json.dumps({"a" * 10_000: [1] * 5000}).encode()
    tracemalloc.start()
    try:
        read_object(body)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 10_000_000
