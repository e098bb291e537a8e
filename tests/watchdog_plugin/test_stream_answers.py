"""Heads of streamed answers: what could not be sent whole is not sent in pieces either."""

from __future__ import annotations

import math
import socket
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from watchdog_plugin.handler_contract import HandlerModule
from watchdog_plugin.item import Event, Item, Reply
from watchdog_plugin.server import _stream
from watchdog_plugin.streaming import Streaming

if TYPE_CHECKING:
    from watchdog_plugin.server import Response


def _answer(piece: object = "piece", **reply: Any) -> Response:
    module = HandlerModule(Path("handler.py"), stream=lambda _: Reply(iter([piece]), **reply))
    item = Item(memoryview(b""), b"POST /\n", math.inf)
    return Streaming(module, everything=True).answer(item)


@pytest.mark.parametrize(
    "reply",
    [
        {"headers": {"x-name": "a\r\nset-cookie: session=forged"}},
        {"headers": {"x-name": "a\r\n\r\n<html>"}},
        {"headers": {"x name": "a"}},
        {"content_type": "text/plain\r\nset-cookie: session=forged"},
    ],
)
def test_no_header_forges_another(reply: dict[str, Any]) -> None:
    """What a caller sent may have become a part of it."""
    answer = _answer(**reply)
    assert 500 == answer.status
    assert "forged" not in str(answer.headers) + answer.content_type


@pytest.mark.parametrize("text", ["a\n", "a\r", "\r\n", "a\ndata: forged"])
def test_no_event_forges_another(text: str) -> None:
    """A line break at the end of a name or id would end the event before its data."""
    for event in (Event("x", name=text), Event("x", id=text)):
        answer = _answer(event)
        assert 500 == answer.status
        assert b"expected one line" in bytes(answer.body)


def test_what_only_looks_like_a_line_break_is_sent() -> None:
    """Readers of events know no other line breaks than these two."""
    answer = _answer(Event("x\x0b", "a\u2028b", "1\x0c"))
    assert "event: a\u2028b\nid: 1\x0c\ndata: x\x0b\n\n" == bytes(answer.body).decode()


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_without_a_body_has_no_pieces(status: int) -> None:
    """They would be taken for the answer to the next request of the connection."""
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        _stream(ours, _answer(status=status), keep_alive=True)
        ours.shutdown(socket.SHUT_WR)
        sent = b"".join(iter(lambda: theirs.recv(4096), b""))
    head, _, rest = sent.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert b"" == rest
