"""Seeded mutations of valid inputs, and a count of their outcomes.

A mutation changes a few places of a valid seed, so that most of it can still be read and the error
is deep inside. A number always gives the same mutation.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["mutated_bytes", "mutated_texts", "outcomes"]

_T = TypeVar("_T")

_EDGES = (0, 1, 2, 7, 8, 9, 0x1F, 0x20, 0x3F, 0x40, 0x7F, 0x80, 0xFE, 0xFF)
_RUNS = (b"\0" * 8, b"\xff" * 4, b"\xff" * 8, b"\x80" * 9 + b"\x01", b"\xff" * 9 + b"\x01")
_MOST_CHANGES = 4


def mutated_bytes(seeds: Sequence[bytes], numbers: Iterable[int]) -> Iterator[bytes]:
    """Yield a variant of one of these valid messages for each number."""
    for number in numbers:
        rng = random.Random(number)
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(1, _MOST_CHANGES)):
            _change_bytes(data, rng)
        yield bytes(data)


def mutated_texts(
    seeds: Sequence[str], words: Sequence[str], numbers: Iterable[int]
) -> Iterator[str]:
    """A variant of one of these valid texts for each number; their language minds ``words``."""
    for number in numbers:
        rng = random.Random(number)
        text = rng.choice(seeds)
        for _ in range(rng.randint(1, _MOST_CHANGES)):
            text = _changed_text(text, words, rng)
        yield text


def outcomes(
    run: Callable[[_T], object], mutations: Iterable[_T], refused: type[Exception]
) -> Counter[str]:
    """Count accepted and refused mutations; any other exception is reported with its input."""
    found: Counter[str] = Counter()
    for at, each in enumerate(mutations):
        try:
            run(each)
        except refused as error:
            found["refused" if str(error) else "refused without a word"] += 1
        except Exception as error:
            msg = f"mutation {at} escapes as {type(error).__name__}: {error}\n{each!r}"
            raise AssertionError(msg) from error
        else:
            found["taken"] += 1
    return found


def _change_bytes(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    until = min(len(data), at + rng.randint(1, 16))
    match rng.randrange(8):
        case 0:
            data[at : at + 1] = bytes([rng.randrange(256)])
        case 1:
            data[at : at + 1] = bytes([rng.choice(_EDGES)])
        case 2 if at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        case 3:
            del data[at:until]
        case 4:
            data[at:at] = data[rng.randrange(len(data) + 1) :][: rng.randint(1, 32)]
        case 5:
            run = rng.choice(_RUNS)
            data[at : at + len(run)] = run
        case 6:
            data[at:at] = rng.choice(_RUNS)
        case _:
            if rng.randrange(4) == 0:
                del data[at:]


def _changed_text(text: str, words: Sequence[str], rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    until = min(len(text), at + rng.randint(1, 12))
    match rng.randrange(6):
        case 0:
            return text[:at] + rng.choice(words) + text[until:]
        case 1:
            return text[:at] + rng.choice(words) + text[at:]
        case 2:
            return text[:at] + text[until:]
        case 3:
            piece = text[rng.randrange(len(text) + 1) :][: rng.randint(1, 40)]
            return text[:at] + piece + text[at:]
        case 4:
            odd = chr(rng.choice((0, 9, 10, 13, 0x7F, 0xE9, 0x2028, 0x1F600)))
            return text[:at] + odd + text[at:]
        case _:
            lines = text.split("\n")
            line = rng.randrange(len(lines))
            lines[line : line + 1] = [lines[line]] * rng.randrange(3)
            return "\n".join(lines)
