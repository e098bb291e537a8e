"""What an author sees of a request."""

from __future__ import annotations

import math

import pytest

from carpool.wire import build_head
from watchdog_plugin import Item, ItemError


def item(body: bytes = b"", first_line: str = "POST /a/b?c=d") -> Item:
    """A request with headers."""
    head = build_head(first_line, [("Content-Type", "text/x"), ("x-id", "1"), ("X-Id", "2")])
    return Item(memoryview(body), head, 0.5)


def test_an_item_tells_its_request() -> None:
    """Method, path, query, headers in any case, deadline and body."""
    one = item(b"body")
    told = (one.method, one.path, one.query, one.content_type, one.remaining_s)
    assert ("POST", "/a/b", "c=d", "text/x", 0.5) == told
    assert "1, 2" == one.headers["X-ID"]
    assert {"content-type", "x-id"} == set(one.headers)
    assert 2 == len(one.headers)
    assert None is one.headers.get("other")
    assert memoryview(b"body") == one.body
    assert b"body" == one.bytes()
    assert "<Item POST /a/b, 4 bytes>" == repr(one)


def test_headers_of_one_request_alone_are_its_own() -> None:
    """They leave method, path and content type as they are."""
    head = build_head("POST /a?b", [("content-type", "text/x"), ("x-call-id", "7")])
    one = Item(memoryview(b""), head, math.inf)
    assert ("POST", "/a", "b", "text/x") == (one.method, one.path, one.query, one.content_type)
    assert {"content-type": "text/x", "x-call-id": "7"} == dict(one.headers)


def test_an_item_without_a_deadline_or_content_type_has_neither() -> None:
    """Infinity and the empty string stand for none."""
    bare = Item(memoryview(b""), build_head("GET /", []), math.inf)
    assert (math.inf, "") == (bare.remaining_s, bare.content_type)


def test_json_that_is_none_is_this_items_error() -> None:
    """The error says 400 and whose it is."""
    assert {"a": 1} == item(b'{"a": 1}').json()
    broken = item(b"{")
    with pytest.raises(ItemError, match="not JSON") as raised:
        broken.json()
    assert 400 == raised.value.status
    assert broken is raised.value.item


@pytest.mark.parametrize("status", [200, 399, 600])
def test_an_error_cannot_claim_success(status: int) -> None:
    """Only error statuses are taken."""
    with pytest.raises(ValueError, match="expected 400 to 599"):
        ItemError("no", status)
