"""Functions over a batch: results are matched to items, and each item fails on its own."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import pytest

from carpool.wire import build_head
from watchdog_plugin import Item, ItemError, Reply
from watchdog_plugin.batch_function import BatchFunction
from watchdog_plugin.function import BatchFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HEAD = build_head("POST /", [])


def answered(
    handle_batch: Callable[[Sequence[Item]], object], *bodies: bytes
) -> list[tuple[int, bytes]]:
    """Return status and body of each item's response."""
    function = BatchFunction(handle_batch)
    work = function.decode([Item(memoryview(body), HEAD, math.inf) for body in bodies])
    function.run(work)
    return [(answer.status, bytes(answer.body)) for answer in function.encode(work)]


def test_each_item_gets_its_result() -> None:
    """Results of any kind, from any iterable, are matched to the items in order."""
    results = [b"a", "b", {"c": 1}, Reply(b"d", 201)]
    expected = [(200, b"a"), (200, b"b"), (200, b'{"c":1}'), (201, b"d")]
    assert expected == answered(lambda _: results, *[b""] * 4)
    assert expected == answered(lambda _: iter(results), *[b""] * 4)


def test_error_in_results_fails_only_its_item() -> None:
    """An `ItemError` or an invalid result in the list fails only its own item."""
    statuses = [s for s, _ in answered(lambda _: [b"", ItemError("no", 422), object()], *[b""] * 3)]
    assert [200, 422, 500] == statuses


def test_invalid_json_body_fails_only_its_item() -> None:
    """If `item.json()` raises, `handle_batch` is called again without that item."""
    sizes = []

    def handle_batch(items: Sequence[Item]) -> list[object]:
        sizes.append(len(items))
        return [item.json()["n"] for item in items]

    answers = answered(handle_batch, b'{"n": 1}', b"{", b'{"n": 3}', b"}", b'{"n": 5}')
    assert [200, 400, 200, 400, 200] == [status for status, _ in answers]
    assert [b"1", b"3", b"5"] == [body for status, body in answers if status == 200]
    assert "not JSON" in json.loads(answers[1][1])["error"]
    assert [5, 4, 3] == sizes


def test_handler_is_not_called_again_without_items() -> None:
    """`handle_batch` is not called again when no item is left."""
    answers = answered(lambda items: [item.json() for item in items], b"{", b"}")
    assert [400, 400] == [status for status, _ in answers]


def raising(error: Exception) -> Callable[[Sequence[Item]], object]:
    """Return a `handle_batch` that raises ``error``."""

    def handle_batch(_: Sequence[Item]) -> object:
        raise error

    return handle_batch


def test_exception_message_is_sent_only_in_batch_of_one() -> None:
    """The message, which may quote an input, is sent only if the batch has one item."""
    secret = ValueError("cannot parse 'secret'")
    with pytest.raises(BatchFailed, match="handle_batch raised ValueError;") as raised:
        answered(raising(secret), b"secret", b"other")
    assert "secret" not in str(raised.value)
    with pytest.raises(BatchFailed, match="cannot parse 'secret'"):
        answered(raising(secret), b"secret")


def test_item_error_without_item_fails_batch() -> None:
    """In a batch of one, a raised `ItemError` belongs to that item."""
    assert [422] == [s for s, _ in answered(raising(ItemError("no", 422)), b"")]
    with pytest.raises(BatchFailed, match="without naming its item"):
        answered(raising(ItemError("no", 422)), b"", b"")


@pytest.mark.parametrize(
    ("results", "told"),
    [
        ([b"a"], "returned 1 results; expected a list of 2"),
        ([b"a"] * 3, "returned 3 results; expected a list of 2"),
        (None, "returned NoneType; expected a list of 2"),
        (b"ab", "returned bytes; expected a list of 2"),
        ("ab", "returned str; expected a list of 2"),
        ({1: 2, 3: 4}, "returned dict; expected a list of 2"),
    ],
)
def test_results_that_do_not_match_the_items_fail_the_batch(results: object, told: str) -> None:
    """A wrong number or type of results fails the batch, so no response reaches a wrong caller."""
    with pytest.raises(BatchFailed, match=told):
        answered(lambda _: results, b"", b"")
