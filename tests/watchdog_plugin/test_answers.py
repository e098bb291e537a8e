"""Conversion of results to responses."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from carpool import errors
from carpool.wire import parse_head
from watchdog_plugin import ItemError, Reply, answers


@pytest.mark.parametrize(
    ("result", "content_type", "body"),
    [
        (b"raw", "application/octet-stream", b"raw"),
        (bytearray(b"raw"), "application/octet-stream", b"raw"),
        (memoryview(b"raw"), "application/octet-stream", b"raw"),
        ("tëxt", "text/plain; charset=utf-8", "tëxt".encode()),
        ({"a": [1, None]}, "application/json", b'{"a":[1,null]}'),
        ([1.5], "application/json", b"[1.5]"),
        (None, "application/json", b"null"),
        (np.array([1, 2]), "application/json", b"[1,2]"),
        (Reply("x"), "text/plain; charset=utf-8", b"x"),
        (Reply({"a": 1}, content_type="application/x"), "application/x", b'{"a":1}'),
    ],
    ids=lambda value: None if isinstance(value, str) else type(value).__name__,
)
def test_result_type_determines_content_type(
    result: object, content_type: str, body: bytes
) -> None:
    """A result that is no `Reply` has status 200 and the content type of its Python type."""
    answer = answers.from_result(result)
    assert 200 == answer.status
    assert (("content-type", content_type),) == parse_head(answer.head).headers
    assert body == answer.body


def test_a_reply_has_its_status_and_headers() -> None:
    """The content type comes first, from its own field, and the other headers follow."""
    headers = {"X-Model": "7", "Content-Type": "ignored"}
    answer = answers.from_result(Reply(b"", 201, "text/csv", headers))
    assert 201 == answer.status
    expected = (("content-type", "text/csv"), ("x-model", "7"))
    assert expected == parse_head(answer.head).headers


def test_item_error_is_sent_with_status_and_message() -> None:
    """The message is sent in the protocol's form of an error."""
    answer = answers.from_result(ItemError("too long", 413))
    assert 413 == answer.status
    assert {"error": "too long"} == json.loads(bytes(answer.body))


def deep(levels: int) -> list[Any]:
    """Return a list nested ``levels`` deep."""
    nested: list[Any] = []
    for _ in range(levels):
        nested = [nested]
    return nested


def repr_of(value: object) -> str:
    """Return the id of a parametrized test."""
    return errors.shown(value).encode("ascii", "backslashreplace").decode()


@pytest.mark.parametrize(
    "result",
    [
        ...,
        {"a": ...},
        Reply(b"", 99),
        Reply(b"", headers={"Content-Length": "5"}),
        Reply(b"", headers={"x": "a\r\nb: c"}),
        Reply(b"", headers={"x y": "a"}),
        Reply(b"", headers={"x": "a\x01"}),
        Reply(b"", headers={"x": "\u20ac"}),
        Reply(b"", headers={"Connection": "close"}),
        Reply(b"", headers={"Upgrade": "h2c"}),
        Reply(b"", headers={1: "a"}),  # type: ignore[dict-item]
        Reply(b"", headers=["x"]),  # type: ignore[arg-type]
        Reply(b"", content_type="text/plain\r\nx: y"),
        Reply(b"", 200.5),  # type: ignore[arg-type]
        Reply(b"", "200"),  # type: ignore[arg-type]
        Reply(Reply(b"")),
        "\ud800",
        deep(2000),
    ],
    ids=repr_of,
)
def test_invalid_result_fails_its_item_with_500(result: Any) -> None:
    """The item gets status 500 with a message that says what was expected."""
    answer = answers.from_result(result)
    assert 500 == answer.status
    assert "expected" in json.loads(bytes(answer.body))["error"]
