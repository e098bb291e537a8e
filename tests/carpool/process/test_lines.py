"""The output of a process cut into lines; floods are dropped and reported."""

from __future__ import annotations

from carpool.process.lines import LineBudget, LineCutter


def test_lines_are_independent_of_how_stream_is_split() -> None:
    """The lines are the same however the stream is split."""
    text = b"one\ntwo\r\n\nthree"
    for size in range(1, len(text)):
        cutter = LineCutter()
        lines: list[str] = []
        for at in range(0, len(text), size):
            lines += cutter.feed(text[at : at + size])
        assert ["one", "two", "", "three"] == [*lines, *cutter.end()]


def test_long_lines_are_cut() -> None:
    """A line beyond the limit keeps its beginning and says how many bytes are missing."""
    cutter = LineCutter(line_bytes=4)
    lines = [*cutter.feed(b"123456"), *cutter.feed(b"78\nok\n"), *cutter.feed(b"\xff\n")]
    assert ["1234 [4 more bytes]", "ok", "\ufffd"] == lines


def test_flood_of_lines_is_rate_limited() -> None:
    """Lines are taken up to the burst limit, then at the permitted rate."""
    budget = LineBudget(per_s=10)
    asked = [(10, 0.0), (1, 0.0), (5, 0.4), (4, 0.5), (99, 0.6), (0, 0.6), (11, 99.0), (10, 99.0)]
    assert [True, False, False, True, False, True, False, True] == [
        budget.takes(lines, now) for lines, now in asked
    ]
    assert "116 lines were dropped: more than 10 a second" == budget.notice()
    assert not budget.notice()


def test_skipped_output_ends_at_a_line_boundary() -> None:
    """The unfinished end of skipped output belongs to the next line."""
    cutter = LineCutter()
    assert ["a"] == list(cutter.feed(b"a\nlost "))
    cutter.skip(b"lost\nlost\nke")
    assert ["kept"] == list(cutter.feed(b"pt\n"))
