"""Determines the type of a file with Google's Magika model, with the magika package's answers.

The model reads a file's first and last bytes: ``preprocess`` extracts them, and ``postprocess``
chooses a label from 214 probabilities by the package's thresholds. Files that are too short for the
model are answered without it. The weights and the two JSON files are the package's own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from watchdog_plugin import Reply

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

example = b"#!/bin/sh\necho 'any file will do'\n"


def preprocess(item: Item) -> np.ndarray | Reply:
    """Return a file's first and last bytes as the model reads them, or a short file's answer."""
    content = item.body
    head = bytes(content[:_BLOCK])
    first = head.lstrip()[:_FIRST]
    if min(len(first), len(content)) < _SHORTEST:
        return Reply(_answer("undefined", _label_of_short(head), 1.0))
    last = bytes(content[-_BLOCK:]).rstrip()[-_LAST:]
    features = np.full(_FIRST + _LAST, _PADDING, np.int32)
    features[: len(first)] = np.frombuffer(first, np.uint8)
    features[_FIRST + _LAST - len(last) :] = np.frombuffer(last, np.uint8)
    return features


def postprocess(outputs: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the likeliest label; a generic one if its score is below the label's threshold."""
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
