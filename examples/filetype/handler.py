"""What kind of file is this? Google's Magika model, answering as the magika package does.

The model reads a file's first and last bytes; ``preprocess`` cuts them out, ``postprocess``
turns 214 probabilities into one label with the package's thresholds. What is known of a file too
short for the model passes by it, through the input ``known``. The weights and the two JSON files
are the package's own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from watchdog_plugin import Item

_HERE = Path(__file__).parent
_MODEL = json.loads((_HERE / "config.json").read_text(encoding="utf-8"))
_TYPES = json.loads((_HERE / "content_types.json").read_text(encoding="utf-8"))

_BLOCK: int = _MODEL["block_size"]
_FIRST: int = _MODEL["beg_size"]
_LAST: int = _MODEL["end_size"]
_SHORTEST: int = _MODEL["min_file_size_for_dl"]
_PADDING: int = _MODEL["padding_token"]

_LET_THE_MODEL_JUDGE = 0
_KNOWN = (None, "empty", "txt", "unknown")

example = b"#!/bin/sh\necho 'any file will do'\n"


def preprocess(item: Item) -> dict[str, np.ndarray]:
    """A file's first and last bytes as the model wants them, and what is known without it."""
    content = item.body
    head = bytes(content[:_BLOCK])
    first = head.lstrip()[:_FIRST]
    short = min(len(first), len(content)) < _SHORTEST
    known = _KNOWN.index(_label_of_short(head)) if short else _LET_THE_MODEL_JUDGE
    last = bytes(content[-_BLOCK:]).rstrip()[-_LAST:]
    features = np.full(_FIRST + _LAST, _PADDING, np.int32)
    features[: len(first)] = np.frombuffer(first, np.uint8)
    features[_FIRST + _LAST - len(last) :] = np.frombuffer(last, np.uint8)
    return {"bytes": features, "known": np.asarray(known, np.int32)}


def postprocess(outputs: dict[str, np.ndarray]) -> dict[str, Any]:
    """One label: the model's best, unless the model is not sure enough of that kind."""
    known = _KNOWN[int(outputs["known_answer"])]
    if known:
        return _answer("undefined", known, 1.0)
    scores = outputs["target_label"]
    best = int(scores.argmax())
    score = float(scores[best])
    guess = _MODEL["target_labels_space"][best]
    label = _MODEL["overwrite_map"].get(guess, guess)
    if score < _MODEL["thresholds"].get(guess, _MODEL["medium_confidence_threshold"]):
        label = "txt" if _TYPES[label]["is_text"] else "unknown"
    return _answer(guess, label, score)


def _label_of_short(content: bytes) -> str:
    if not content:
        return "empty"
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return "unknown"
    return "txt"


def _answer(guess: str, label: str, score: float) -> dict[str, Any]:
    kind = _TYPES[label]
    return {
        "label": label,
        "score": score,
        "model_label": guess,
        "mime_type": kind["mime_type"],
        "group": kind["group"],
        "description": kind["description"],
    }
