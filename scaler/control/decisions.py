"""The latest decisions about one function, for operators who ask why."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Decision", "Decisions", "without_numbers"]

_KEPT = 64
_NUMBER = re.compile(r"\d[\d.]*")


@dataclass(frozen=True, slots=True)
class Decision:
    """Something that was decided, or went wrong, and when, in seconds since the epoch."""

    at_s: float
    text: str


class Decisions:
    """The latest of them, in order."""

    def __init__(self) -> None:
        self._kept: deque[Decision] = deque(maxlen=_KEPT)
        self._noted: set[str] = set()

    def __iter__(self) -> Iterator[Decision]:
        return iter(self._kept)

    def add(self, text: str, at_s: float) -> None:
        """Something was decided; said twice in a row it is one decision."""
        if not (self._kept and self._kept[-1].text == text):
            self._kept.append(Decision(at_s, text))

    def note(self, troubles: Sequence[str], at_s: float) -> None:
        """These are the troubles now; the ones that are new, by more than a number, are told."""
        texts = {without_numbers(text): text for text in troubles}
        for plain, text in texts.items():
            if plain not in self._noted:
                self.add(text, at_s)
        self._noted = set(texts)


def without_numbers(text: str) -> str:
    """What a trouble has in common with the same one whose numbers are others."""
    return _NUMBER.sub("", text)
