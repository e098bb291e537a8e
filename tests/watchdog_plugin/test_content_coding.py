"""Bodies with a Content-Encoding."""

from __future__ import annotations

import gzip
import math
import zlib

import pytest

from carpool.wire import build_head
from watchdog_plugin import Item, ItemError
from watchdog_plugin.batch_function import BatchFunction
from watchdog_plugin.content_coding import NotDecodedError, decoded

TEXT = b'{"a": 1}'


def item(body: bytes, coding: str = "gzip") -> Item:
    """A request with a body in this coding."""
    head = build_head("POST /", [("content-encoding", coding)])
    return Item(memoryview(body), head, math.inf)


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(TEXT, mtime=0)),
        ("X-GZIP", gzip.compress(TEXT, mtime=0)),
        ("deflate", zlib.compress(TEXT)),
        ("identity", TEXT),
    ],
)
def test_an_item_has_its_body_as_it_was_before(coding: str, body: bytes) -> None:
    """However often it is read."""
    one = item(body, coding)
    assert TEXT == one.bytes() == one.bytes()
    assert {"a": 1} == one.json()


@pytest.mark.parametrize(
    ("coding", "body", "status", "said"),
    [
        ("br", TEXT, 415, "'br': expected gzip, deflate or identity"),
        ("gzip, gzip", TEXT, 415, "'gzip, gzip'"),
        ("gzip", TEXT, 400, "is not gzip"),
        ("deflate", gzip.compress(TEXT, mtime=0), 400, "is not deflate"),
        ("gzip", gzip.compress(TEXT, mtime=0)[:-4], 400, "only the beginning"),
        ("gzip", gzip.compress(TEXT, mtime=0) * 2, 400, "more than one part"),
        ("gzip", gzip.compress(bytes(101), mtime=0), 413, "larger than 100 bytes"),
    ],
)
def test_what_cannot_be_decoded_is_told(coding: str, body: bytes, status: int, said: str) -> None:
    """With the status that says whose fault it is."""
    with pytest.raises(NotDecodedError, match=said) as raised:
        decoded(memoryview(body), coding, 100)
    assert status == raised.value.status


def test_a_body_may_be_as_large_as_the_limit() -> None:
    """To the byte."""
    assert bytes(100) == decoded(memoryview(gzip.compress(bytes(100))), "gzip", 100)


def test_a_body_that_cannot_be_decoded_fails_alone() -> None:
    """The author's code reads it like any other, and its neighbours are answered."""
    function = BatchFunction(lambda items: [one.bytes() for one in items])
    work = function.decode(
        [item(gzip.compress(b"good", mtime=0)), item(b"bad"), item(b"unknown", "br")]
    )
    function.run(work)
    good, bad, unknown = function.encode(work)
    assert (200, b"good") == (good.status, good.body)
    assert (400, 415) == (bad.status, unknown.status)


def test_an_error_says_whose_it_is() -> None:
    """So that the others can be given again."""
    broken = item(b"no")
    with pytest.raises(ItemError) as raised:
        _ = broken.body
    assert broken is raised.value.item
