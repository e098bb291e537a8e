"""Request bodies with a Content-Encoding."""

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
    """Return a request with ``body`` in the given coding."""
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
def test_item_body_is_decoded(coding: str, body: bytes) -> None:
    """The body is decoded, however often it is read."""
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
        ("gzip", gzip.compress(TEXT, mtime=0) * 2, 400, "more than one gzip stream"),
        ("gzip", gzip.compress(bytes(101), mtime=0), 413, "larger than 100 bytes"),
    ],
)
def test_undecodable_body_is_refused_with_fitting_status(
    coding: str, body: bytes, status: int, said: str
) -> None:
    """The error has a message and the status that fits its cause."""
    with pytest.raises(NotDecodedError, match=said) as raised:
        decoded(memoryview(body), coding, 100)
    assert status == raised.value.status


def test_a_body_may_be_as_large_as_the_limit() -> None:
    """A body of exactly as many bytes as the limit is decoded."""
    assert bytes(100) == decoded(memoryview(gzip.compress(bytes(100))), "gzip", 100)


def test_undecodable_body_fails_only_its_item() -> None:
    """The other items of the batch are answered, without error handling by the author."""
    function = BatchFunction(lambda items: [one.bytes() for one in items])
    work = function.decode(
        [item(gzip.compress(b"good", mtime=0)), item(b"bad"), item(b"unknown", "br")]
    )
    function.run(work)
    good, bad, unknown = function.encode(work)
    assert (200, b"good") == (good.status, good.body)
    assert (400, 415) == (bad.status, unknown.status)


def test_decoding_error_names_its_item() -> None:
    """The error names its item, so that the other items can be run again."""
    broken = item(b"no")
    with pytest.raises(ItemError) as raised:
        _ = broken.body
    assert broken is raised.value.item
