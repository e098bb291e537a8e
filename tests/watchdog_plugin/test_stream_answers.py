"""Heads of streamed responses are checked like those of responses with one body."""

from __future__ import annotations

import math
import socket
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from watchdog_plugin import loading
from watchdog_plugin.handler_contract import HandlerModule
from watchdog_plugin.item import Event, Item, Reply
from watchdog_plugin.server import _stream
from watchdog_plugin.settings import HandlerSettings
from watchdog_plugin.streaming import Streaming

if TYPE_CHECKING:
    from watchdog_plugin.server import Response


def _answer(piece: object = "piece", **reply: Any) -> Response:
    module = HandlerModule(Path("handler.py"), stream=lambda _: Reply(iter([piece]), **reply))
    item = Item(memoryview(b""), b"POST /\n", math.inf)
    return Streaming(module, everything=True, at_once_max=1).answer(item)


@pytest.mark.parametrize(
    "reply",
    [
        {"headers": {"x-name": "a\r\nset-cookie: session=forged"}},
        {"headers": {"x-name": "a\r\n\r\n<html>"}},
        {"headers": {"x name": "a"}},
        {"content_type": "text/plain\r\nset-cookie: session=forged"},
    ],
)
def test_header_with_line_break_gets_500(reply: dict[str, Any]) -> None:
    """A header with a line break, perhaps from a caller's input, gives status 500."""
    answer = _answer(**reply)
    assert 500 == answer.status
    assert "forged" not in str(answer.headers) + answer.content_type


@pytest.mark.parametrize("text", ["a\n", "a\r", "\r\n", "a\ndata: forged"])
def test_event_name_or_id_with_line_break_gets_500(text: str) -> None:
    """A line break in a name or id would end the event before its data."""
    for event in (Event("x", name=text), Event("x", id=text)):
        answer = _answer(event)
        assert 500 == answer.status
        assert b"expected one line" in bytes(answer.body)


def test_other_line_separators_are_sent() -> None:
    """Clients of event streams recognize only CR and LF as line breaks."""
    answer = _answer(Event("x\x0b", "a\u2028b", "1\x0c"))
    assert "event: a\u2028b\nid: 1\x0c\ndata: x\x0b\n\n" == bytes(answer.body).decode()


def test_as_many_streams_run_at_once_as_the_setting_allows(tmp_path: Path) -> None:
    """The function's setting is honoured beyond the handler's default of 256; more get 503."""
    (tmp_path / "handler.py").write_text("def stream(item):\n    yield 'one'\n    yield 'two'\n")
    env = {"function_dir": str(tmp_path), "carpool_streams_max": "300"}
    streaming = loading.load(HandlerSettings.from_env(env)).streaming
    assert streaming
    item = Item(memoryview(b""), b"POST /\n", math.inf)
    running = [streaming.answer(item) for _ in range(300)]
    assert {200} == {answer.status for answer in running}
    refused = streaming.answer(item)
    assert (503, True) == (refused.status, b"300 streams run already" in bytes(refused.body))
    for answer in running:
        assert answer.pieces
        answer.pieces.close()
    assert 200 == streaming.answer(item).status


@pytest.mark.parametrize("status", [204, 304])
def test_response_without_body_sends_no_chunks(status: int) -> None:
    """A body would be read as the response to the connection's next request."""
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        _stream(ours, _answer(status=status), keep_alive=True)
        ours.shutdown(socket.SHUT_WR)
        sent = b"".join(iter(lambda: theirs.recv(4096), b""))
    head, _, rest = sent.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert b"" == rest
