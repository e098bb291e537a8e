"""The latest decisions about one function, for operators who ask why."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Decision", "Decisions", "new_sentences", "without_numbers"]

_KEPT = 64
_NUMBER = re.compile(r"\d[\d.]*")


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision or a problem, with its time in seconds since the epoch."""

    at_s: float
    text: str


class Decisions:
    """The latest decisions, in order."""

    def __init__(self) -> None:
        self._kept: deque[Decision] = deque(maxlen=_KEPT)
        self._noted: set[str] = set()

    def __iter__(self) -> Iterator[Decision]:
        return iter(self._kept)

    def add(self, text: str, at_s: float) -> None:
        """Record a decision, unless it repeats the previous one."""
        if not (self._kept and self._kept[-1].text == text):
            self._kept.append(Decision(at_s, text))

    def note(self, troubles: Sequence[str], at_s: float) -> None:
        """Replace the current troubles, recording those that differ in more than numbers."""
        texts = {without_numbers(text): text for text in troubles}
        for plain, text in texts.items():
            if plain not in self._noted:
                self.add(text, at_s)
        self._noted = set(texts)


def without_numbers(text: str) -> str:
    """Remove the numbers from a text, to recognise the same trouble with other numbers."""
    return _NUMBER.sub("", text)


def new_sentences(known: Sequence[str], sentences: Sequence[str]) -> list[str]:
    """Return the sentences that differ from all known ones in more than numbers."""
    plain = {without_numbers(sentence) for sentence in known}
    return [sentence for sentence in sentences if without_numbers(sentence) not in plain]
