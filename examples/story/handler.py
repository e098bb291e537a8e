"""Continues a sentence, word by word: a minimal function that streams its responses.

Callers that accept `text/event-stream` get each word as soon as it is found. All other requests are
batched, and get all words at once.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from watchdog_plugin import Item

example = b"the fox"
_WORDS_MAX = 40
_TOLD = """
    the fox saw the crow and the crow saw the cheese .
    the cheese fell and the fox ran to the river .
    the river saw the fox and the moon .
    the moon fell to the river and the crow flew to the moon .
"""
_followers = defaultdict(list)


def load() -> None:
    """Learn which words follow a word."""
    for word, follower in itertools.pairwise(_TOLD.split()):
        _followers[word].append(follower)


def handle_batch(items: Sequence[Item]) -> list[dict[str, str]]:
    """Return one sentence per item."""
    return [{"sentence": " ".join(_words(item))} for item in items]


def stream(item: Item) -> Iterator[str]:
    """Yield the same sentence, a word at a time."""
    return _words(item)


def _words(item: Item) -> Iterator[str]:
    prompt = item.bytes().decode("utf-8", "replace")
    chance = random.Random(prompt)  # noqa: S311  the same prompt, the same sentence
    word = (prompt.split() or ["the"])[-1]
    for _ in range(_WORDS_MAX):
        word = chance.choice(_followers.get(word) or _followers["the"])
        yield word
        if word == ".":
            return
