"""Merging requests of the v1 form and dividing their response."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carpool.errors import FunctionFault
from sidecar.runtime.merging import ENTRIES_MAX, Message, v1
from tests.effort import scaled

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def read(body: bytes, most: int = ENTRIES_MAX) -> v1.Instances | None:
    """Return the mergeable instances of a request, or None."""
    return v1.read("/", Message(body), most)


def divided(answer: bytes, *counts: int) -> list[object]:
    """Return the parts of a response to requests with these numbers of instances."""
    bodies = [b'{"instances": [%b1]}' % (b"1," * (count - 1)) for count in counts]
    requests = [found for found in map(read, bodies) if found]
    return [json.loads(bytes(part.body)) for part in v1.divided(Message(answer), requests)]


@given(st.lists(st.lists(JSON, min_size=1, max_size=4), min_size=1, max_size=5))
@settings(max_examples=scaled(200))
def test_merging_and_dividing_preserves_instances_and_order(requests: list[list[object]]) -> None:
    """Merging and dividing returns each request's own instances, in order."""
    bodies = [json.dumps({"instances": rows}).encode() for rows in requests]
    found = [each for each in map(read, bodies) if each is not None]
    assert len(requests) == len(found)
    one = json.loads(bytes(v1.merged(found).body))
    assert {"instances": [row for rows in requests for row in rows]} == one
    answer = json.dumps({"predictions": one["instances"]}).encode()
    parts = divided(answer, *[len(rows) for rows in requests])
    assert [{"predictions": rows} for rows in requests] == parts


def test_numbers_keep_their_text() -> None:
    """Numbers keep their text, as the server may read them with more precision."""
    (found,) = [read(b'{"instances": [1.10, 1e400, 12345678901234567890123]}')]
    assert found is not None
    assert b'{"instances":[1.10,1e400,12345678901234567890123]}' == v1.merged([found]).body


def test_other_fields_are_kept_in_merged_request_and_responses() -> None:
    """Other fields are kept in the merged request and in each part of the response."""
    found = read(b'{"signature_name": "a", "instances": [1], "a\\"b": {"c": [2]}}')
    assert found is not None
    assert {"instances": [1, 1], "signature_name": "a", 'a"b': {"c": [2]}} == json.loads(
        bytes(v1.merged([found, found]).body)
    )
    parts = divided(b'{"predictions": [3, 4, 5], "version": 7}', 1, 2)
    assert [{"predictions": [3], "version": 7}, {"predictions": [4, 5], "version": 7}] == parts


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"inputs": [1]}',
        b'{"instances": []}',
        b'{"instances": {}}',
        b'{"instances": [1}',
        b'{"instances": [1], "x": }',
        b'\xff{"instances": [1]}',
        b'{"instances": ' + b"[" * 100_000,
    ],
)
def test_request_without_instances_is_not_merged(body: bytes) -> None:
    """A request without a list of instances is not merged, so that the server reports the error."""
    assert read(body) is None


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"predictions": [1]}', "1 predictions for 2 instances"),
        (b'{"predictions": 1}', "no list of predictions for 2 instances"),
        (b"<html>", "no list of predictions"),
    ],
)
def test_response_with_wrong_number_of_predictions_is_server_fault(body: bytes, said: str) -> None:
    """A response without the right number of predictions is a fault of the server."""
    with pytest.raises(FunctionFault, match=said):
        divided(body, 1, 1)


@pytest.mark.parametrize("beside", [b'"scores": [9, 8, 7]', b'"scores" :\n {"a": 1}'])
def test_response_with_list_or_object_beside_predictions_is_fault(beside: bytes) -> None:
    """A list or object beside the predictions is a fault, as it may hold others' data."""
    with pytest.raises(FunctionFault, match="'scores' beside predictions"):
        divided(b'{"predictions": [1, 2, 3], %b}' % beside, 1, 2)


def test_scalars_beside_the_predictions_go_to_every_caller() -> None:
    """Scalars of every JSON type beside the predictions go to every caller."""
    scalars = {"a": 1, "b": -2.5, "c": "[]", "d": True, "e": False, "f": None}
    answer = json.dumps({"predictions": [1, 2], **scalars}).encode()
    assert [{"predictions": [n], **scalars} for n in (1, 2)] == divided(answer, 1, 1)


def test_only_some_of_too_many_instances_are_cut_out() -> None:
    """Only some of too many instances are cut out, so that a small body takes little memory."""
    body = b'{"instances": [%b1]}' % (b"1," * 99_999)
    tracemalloc.start()
    found = read(body, 32)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found is not None
    assert 32 < len(found.entries) <= 64
    assert peak_bytes < 2 * len(body)
    exact = read(b'{"instances": [%b1]}' % (b"1," * 31), 32)
    assert exact is not None
    assert 32 == len(exact.entries)


def test_request_with_very_many_fields_is_not_merged() -> None:
    """A request with very many other fields is not merged; one with a thousand is."""
    body = b'{"instances": [1]%b}' % b"".join([b',"%d":1' % n for n in range(100_000)])
    tracemalloc.start()
    found = read(body)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found is None
    assert peak_bytes < len(body)
    assert read(b'{"instances": [1]%b}' % b"".join([b',"%d":1' % n for n in range(1000)]))
