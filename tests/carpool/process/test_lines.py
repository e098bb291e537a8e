"""What a process prints, cut into lines; floods are dropped and told."""

from __future__ import annotations

from carpool.process.lines import LineBudget, LineCutter


def test_lines_are_cut_from_any_pieces() -> None:
    """However the stream is split, the same lines come out."""
    text = b"one\ntwo\r\n\nthree"
    for size in range(1, len(text)):
        cutter = LineCutter()
        lines: list[str] = []
        for at in range(0, len(text), size):
            lines += cutter.feed(text[at : at + size])
        assert ["one", "two", "", "three"] == [*lines, *cutter.end()]


def test_long_lines_are_cut() -> None:
    """A line beyond the limit keeps its beginning and says how much is gone."""
    cutter = LineCutter(line_bytes=4)
    lines = [*cutter.feed(b"123456"), *cutter.feed(b"78\nok\n"), *cutter.feed(b"\xff\n")]
    assert ["1234 [4 more bytes]", "ok", "\ufffd"] == lines


def test_a_flood_of_lines_is_dropped_and_told() -> None:
    """As many as there may be at once are kept, and then as many as there may be in the time."""
    budget = LineBudget(per_s=10)
    asked = [(10, 0.0), (1, 0.0), (5, 0.4), (4, 0.5), (99, 0.6), (0, 0.6), (11, 99.0), (10, 99.0)]
    assert [True, False, False, True, False, True, False, True] == [
        budget.takes(lines, now) for lines, now in asked
    ]
    assert "116 lines were dropped: more than 10 a second" == budget.told()
    assert not budget.told()


def test_what_is_skipped_ends_at_a_line() -> None:
    """The rest of it belongs to the line that comes next."""
    cutter = LineCutter()
    assert ["a"] == list(cutter.feed(b"a\nlost "))
    cutter.skip(b"lost\nlost\nke")
    assert ["kept"] == list(cutter.feed(b"pt\n"))
