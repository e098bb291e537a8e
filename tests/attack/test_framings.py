"""With any framing, cut anywhere, no answer goes to another request, at both edges."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, NamedTuple

import pytest

from carpool.http.server import Exchange, Limits, Server
from tests.attack.edges import Edge, Edges, connect
from tests.attack.framings import CLOSING, ENDLESS, FRAMINGS
from tests.carpool.http.edge import Socketless, echo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.attack.effort import Effort

AFTER = b"GET ~/after HTTP/1.1\r\nhost: x\r\n\r\n"
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) [A-Z]")
_ANSWER_S = 20.0
_CUTS = 200  # longer ones are cut at some places only
ALL = FRAMINGS | CLOSING | ENDLESS


class Answer(NamedTuple):
    """A complete answer."""

    status: int
    body: bytes


@pytest.fixture(scope="module")
def edges(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edges]:
    """Yield a provider and its sidecar."""
    with Edges(tmp_path_factory.mktemp("edges")) as running:
        yield running


async def answers(reader: asyncio.StreamReader, raw: bytes) -> list[Answer]:
    """Return all answers until the connection ends, or until the last request has its own."""
    methods = iter([b"HEAD" if b"HEAD" in raw else b"GET"])  # such a request comes first
    seen: list[Answer] = []
    try:
        while True:
            seen.append(await one_answer(reader, next(methods, b"GET")))
            if seen[-1].body.endswith(b"GET /after\n"):
                return seen
    except asyncio.IncompleteReadError as end:
        if end.partial:
            raise
        return seen


async def one_answer(reader: asyncio.StreamReader, method: bytes) -> Answer:
    """Return the next answer, without interim ones."""
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head[:-4].split(b"\r\n")
        version, status, _ = first.split(b" ", 2)
        assert b"HTTP/1.1" == version, f"expected an answer, got {head!r}"
        if status != b"100":
            break
    headers = [line.split(b": ", 1) for line in lines]
    (length,) = [value for name, value in headers if name == b"content-length"]
    body = b"" if method == b"HEAD" else await reader.readexactly(int(length))
    return Answer(int(status), body)


async def attack(edge: Edge, what: str) -> str:
    """Send a framing and one request after it; return what is wrong with the answers."""
    statuses, raw = ALL[what]
    reader, writer = await connect(edge)
    try:
        writer.write((raw + AFTER).replace(b"~", edge.prefix))
        if what in ENDLESS:
            writer.write_eof()
        async with asyncio.timeout(_ANSWER_S):
            seen = await answers(reader, raw)
    except (TimeoutError, OSError, ValueError, EOFError) as error:
        return repr(error)
    finally:
        writer.transport.abort()
    told = [answer.status for answer in seen]
    own = [answer.body.endswith(b"GET /after\n") for answer in seen]
    if any(b"smuggled" in answer.body.partition(b"\n")[0] for answer in seen):
        return f"smuggled: {seen}"
    if what in ENDLESS:
        return "" if [status >= 400 for status in told] in ([], [True]) else f"told {told}"
    goes_on = statuses[-1] < 400 and what not in CLOSING
    if told != [*statuses, 200][: len(statuses) + goes_on]:
        return f"told {told}, expected {statuses}: {[answer.body[:80] for answer in seen]}"
    return "" if own == [False] * len(statuses) + [True] * goes_on else f"crossed: {seen}"


@pytest.mark.parametrize("name", ["sidecar", "provider"])
def test_every_framing_has_its_outcome(edges: Edges, effort: Effort, name: str) -> None:
    """Every framing has its outcome, and the next request gets its own answer or none."""
    edge = edges[name]

    async def all_of_them() -> list[str]:
        return await asyncio.gather(*(attack(edge, what) for what in ALL))

    wrong = dict(zip(ALL, edges.run(all_of_them()), strict=True))
    effort.count(f"framings, {name}", len(ALL))
    assert {} == {what: text for what, text in wrong.items() if text}
    assert len(ALL) >= 120


class Cutting:
    """An edge without sockets that gets its input in pieces."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()

    def read(self, *pieces: bytes) -> tuple[list[object], list[int]]:
        """Return the requests that the application sees, and the statuses that the client gets."""
        seen: list[object] = []

        def app(exchange: Exchange) -> None:
            seen.append((exchange.method, exchange.target, exchange.headers, exchange.body))
            echo(exchange)

        server = Server(app, Limits(), self.loop)
        client = Socketless(server)
        client.feed(*pieces)
        client.hang_up()
        self.loop.run_until_complete(asyncio.sleep(0))
        assert 0 == server.held_bytes
        statuses = [int(status) for status in STATUS.findall(client.sent)]
        return seen, [status for status in statuses if status != 100]


@pytest.fixture(scope="module")
def cutting() -> Iterator[Cutting]:
    """Yield one edge for all framings."""
    cutting = Cutting()
    yield cutting
    cutting.loop.close()


@pytest.mark.parametrize("what", ALL)
def test_split_input_is_read_like_the_whole(cutting: Cutting, effort: Effort, what: str) -> None:
    """Two pieces, cut at every place, and single bytes are read like the whole."""
    statuses, raw = ALL[what]
    raw = raw.replace(b"~", b"")
    whole = cutting.read(raw)
    assert list(statuses) == whole[1]
    step = 1 + len(raw) // _CUTS
    for place in range(1, len(raw), step):
        assert whole == cutting.read(raw[:place], raw[place:]), f"cut at {place}"
    assert whole == cutting.read(*[raw[i : i + step] for i in range(0, len(raw), step)])
    effort.count("framings, cut", len(range(1, len(raw), step)) + 1)
