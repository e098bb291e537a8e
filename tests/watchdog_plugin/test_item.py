"""The request as the author of a function sees it."""

from __future__ import annotations

import math

import pytest

from carpool.wire import build_head
from watchdog_plugin import Item, ItemError


def item(body: bytes = b"", first_line: str = "POST /a/b?c=d") -> Item:
    """Return a request with headers."""
    head = build_head(first_line, [("Content-Type", "text/x"), ("x-id", "1"), ("X-Id", "2")])
    return Item(memoryview(body), head, 0.5)


def test_item_exposes_its_request() -> None:
    """An item has method, path, query, case-insensitive headers, deadline and body."""
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


def test_extra_header_does_not_change_other_attributes() -> None:
    """A header that only one request has does not change its method, path or content type."""
    head = build_head("POST /a?b", [("content-type", "text/x"), ("x-call-id", "7")])
    one = Item(memoryview(b""), head, math.inf)
    assert ("POST", "/a", "b", "text/x") == (one.method, one.path, one.query, one.content_type)
    assert {"content-type": "text/x", "x-call-id": "7"} == dict(one.headers)


def test_missing_deadline_and_content_type_have_defaults() -> None:
    """A missing deadline is infinity, and a missing content type is empty."""
    bare = Item(memoryview(b""), build_head("GET /", []), math.inf)
    assert (math.inf, "") == (bare.remaining_s, bare.content_type)


def test_invalid_json_is_error_of_its_item() -> None:
    """The error has status 400 and names its item."""
    assert {"a": 1} == item(b'{"a": 1}').json()
    broken = item(b"{")
    with pytest.raises(ItemError, match="not JSON") as raised:
        broken.json()
    assert 400 == raised.value.status
    assert broken is raised.value.item


@pytest.mark.parametrize("status", [200, 399, 600])
def test_an_error_cannot_claim_success(status: int) -> None:
    """Only error statuses are accepted."""
    with pytest.raises(ValueError, match="expected 400 to 599"):
        ItemError("no", status)
