"""The batch wire format: golden bytes, round trips, and only WireError on bad bytes."""

from __future__ import annotations

import math
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool import wire

GOLDEN = Path(__file__).parent / "golden"

JSON_HEAD = wire.build_head("POST /v2/models/m/infer", [("Content-Type", "application/json")])
TEXT_HEAD = wire.build_head("GET /", [])
OK_HEAD = wire.build_head("", [("content-type", "application/json")])

REQUEST = (
    [7, 8, 9],
    [0.25, math.inf, 0.125],
    [JSON_HEAD, JSON_HEAD, TEXT_HEAD],
    [b"{}", b"", b"abc"],
)
ANSWER = ([7, 8, 9], [200, 400, 200], [OK_HEAD] * 3, [b"[1]", b'{"error":"no"}', b""])


def test_request_batch_equals_golden_file() -> None:
    """The format does not change: messages equal the golden file, which was written once."""
    assert (GOLDEN / "request.bin").read_bytes() == wire.encode_request(*REQUEST)


def test_response_batch_equals_golden_file() -> None:
    """Answers equal their golden file, too."""
    assert (GOLDEN / "answer.bin").read_bytes() == wire.encode_answer(*ANSWER)


def test_golden_requests_are_read() -> None:
    """Reading the golden bytes gives what was written, including a missing deadline."""
    columns = wire.decode_request((GOLDEN / "request.bin").read_bytes())
    assert (7, 8, 9) == columns.ids
    assert (0.25, math.inf, 0.125) == columns.remaining_s
    assert [b"{}", b"", b"abc"] == [bytes(body) for body in columns.bodies]
    head = wire.parse_head(columns.heads[0])
    assert ("POST /v2/models/m/infer", (("content-type", "application/json"),)) == head


def test_bodies_are_aligned_and_contiguous() -> None:
    """Equal-shape tensors can be viewed as one array without a copy."""
    message = wire.encode_request([1, 2], [1.0, 1.0], [TEXT_HEAD] * 2, [b"a" * 16, b"b" * 16])
    assert message.endswith(b"a" * 16 + b"b" * 16)
    assert 0 == (len(message) - 32) % 64


def test_shared_head_is_sent_once() -> None:
    """Thirty-two requests with the same head take the bytes of one head."""
    message = wire.encode_request(range(32), [1.0] * 32, [JSON_HEAD] * 32, [b""] * 32)
    assert 1 == message.count(JSON_HEAD)


HEADS = st.lists(
    st.tuples(st.sampled_from(["a", "x-b"]), st.text("xyz 1:", max_size=9)), max_size=3
)
ITEMS = st.lists(
    st.tuples(
        st.integers(0, 2**64 - 1),
        st.floats(0, 1000, width=32) | st.just(math.inf),
        HEADS,
        st.binary(max_size=80),
    ),
    max_size=9,
)


@given(ITEMS)
def test_written_batch_is_read_back_unchanged(
    items: list[tuple[int, float, list[tuple[str, str]], bytes]],
) -> None:
    """Reading a written batch gives the same batch."""
    heads = [wire.build_head("POST /x", head) for _, _, head, _ in items]
    ids, remaining = [item[0] for item in items], [item[1] for item in items]
    bodies = [item[3] for item in items]
    columns = wire.decode_request(wire.encode_request(ids, remaining, heads, bodies))
    assert ids == list(columns.ids)
    assert remaining == list(columns.remaining_s)
    assert heads == list(columns.heads)
    assert bodies == [bytes(body) for body in columns.bodies]
    for head, item in zip(columns.heads, items, strict=True):
        assert tuple(item[2]) == wire.parse_head(head).headers


@given(st.binary(max_size=200))
def test_garbage_is_refused(data: bytes) -> None:
    """Bytes that are no message raise WireError alone; zeros may be a message without items."""
    for magic in (b"", b"CPQ1", b"CPA1"):
        for decode in (wire.decode_request, wire.decode_answer):
            with suppress(wire.WireError):
                assert () == decode(magic + data).ids


@pytest.mark.parametrize("answers", [False, True], ids=["requests", "answers"])
@given(data=st.data())
def test_damaged_messages_are_refused_or_read(data: st.DataObject, answers: bool) -> None:  # noqa: FBT001
    """Changed, missing or additional bytes give WireError or complete columns, never a crash."""
    message = bytearray(wire.encode_answer(*ANSWER) if answers else wire.encode_request(*REQUEST))
    for _ in range(data.draw(st.integers(0, 3))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    del message[data.draw(st.integers(0, len(message))) :]
    message += data.draw(st.binary(max_size=4))
    with suppress(wire.WireError):
        columns = (wire.decode_answer if answers else wire.decode_request)(bytes(message))
        assert {len(columns.ids)} == {len(column) for column in columns}
        for head in columns.heads:
            wire.parse_head(head)


@given(
    st.binary(max_size=60)
    | st.lists(st.sampled_from([b"a", b": ", b"\n", b"\r", b"\0"])).map(b"".join)
)
def test_head_is_refused_or_rewritten_in_lower_case(data: bytes) -> None:
    """A head that can be read is written again in lower case; other bytes raise WireError."""
    with suppress(wire.WireError):
        head = wire.parse_head(data)
        assert data.decode("latin-1").lower() == wire.build_head(*head).decode("latin-1").lower()


@given(
    st.text("abcXYZ /?", max_size=20),
    st.lists(st.tuples(st.text(min_size=1, max_size=9), st.text(max_size=9)), max_size=3),
)
def test_built_head_can_be_read(line: str, headers: list[tuple[str, str]]) -> None:
    """Reading a head of `build_head` gives the same number of headers."""
    with suppress(wire.WireError):
        head = wire.build_head(line, headers)
        assert (line, len(headers)) == (wire.parse_head(head)[0], len(wire.parse_head(head)[1]))


def test_shared_head_omits_only_complete_lines_at_end() -> None:
    """Only complete, well-formed lines at the end are left out."""
    own = b"traceparent: 00-ab-cd-01\nx-call-id: 7\n"
    kept = [
        JSON_HEAD,
        TEXT_HEAD,
        JSON_HEAD + b"x-call-id: 7\naccept: */*\n",
        JSON_HEAD + b"x-call-id: \0\n",
        JSON_HEAD + b"x-call-id: 7",
        b"x-call-id: 7\n",
        b"",
    ]
    assert [JSON_HEAD, TEXT_HEAD] == [wire.shared_head(h + own) for h in (JSON_HEAD, TEXT_HEAD)]
    assert kept == [wire.shared_head(head) for head in kept]


def test_large_heads_are_not_kept() -> None:
    """The cache of heads excludes the large heads that a client may send."""
    kept = len(wire.parse_head)
    for i in range(10):
        wire.parse_head(b"POST /%d\nx: %b\n" % (i, bytes([97]) * 10_000))
    assert kept == len(wire.parse_head)


def test_excessive_item_count_is_refused_without_allocation() -> None:
    """Four billion items announced in sixteen bytes are refused without an allocation."""
    with pytest.raises(wire.WireError, match="at least"):
        wire.decode_request(struct.pack("<4sIII", b"CPQ1", 2**32 - 1, 1, 0))


@pytest.mark.parametrize("value", ["a\r\nx: y", "a\nb", "a\rb", "a\0b"])
def test_line_break_in_header_is_refused(value: str) -> None:
    """A line break in a value is refused when the head is built."""
    with pytest.raises(wire.WireError, match="printable"):
        wire.build_head("", [("x", value)])


@pytest.mark.parametrize(
    "head",
    [b"", b"no newline", b"POST /\nno colon\n", b"\na: b\rc: d\n", b"\na: b\0\n", b"\n: a\n"],
)
def test_a_malformed_head_is_refused(head: bytes) -> None:
    """A head has a first line and 'name: value' lines."""
    with pytest.raises(wire.WireError):
        wire.parse_head(head)


def test_columns_of_different_length_are_refused() -> None:
    """A batch is a table; columns of different lengths are an error of the writer."""
    with pytest.raises(wire.WireError, match="differ"):
        wire.encode_request([1, 2], [1.0], [TEXT_HEAD], [b""])


def test_negative_id_is_refused() -> None:
    """A negative id cannot be written."""
    with pytest.raises(wire.WireError, match="fit"):
        wire.encode_request([-1], [1.0], [TEXT_HEAD], [b""])


def test_a_message_of_too_many_answers_is_refused() -> None:
    """Its reader would use many times the message's size."""
    message = wire.encode_answer([1, 2, 3], [200] * 3, [b"\n"] * 3, [b""] * 3)
    assert (1, 2, 3) == wire.decode_answer(message, 3).ids
    with pytest.raises(wire.WireError, match="a batch message of 3 items: expected at most 2"):
        wire.decode_answer(message, 2)
