"""The validation set: a file of NumPy arrays, one for each input of the model, and `labels`.

A result is correct if the largest value of its first output is at the label's index, or, if the
model returns one integer per input, if that equals the label.
"""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from carpool.errors import ConfigError, FunctionFault
from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from watchdog_plugin.protocols.tensors import Signature, TensorSpec

__all__ = ["LABELS", "ValidationSet", "read_validation"]

LABELS = "labels"


@dataclass(frozen=True)
class ValidationSet:
    """Inputs with their labels.

    Attributes:
        inputs: Arrays by input name, with one row per label.
        labels: The correct results.
    """

    inputs: Mapping[str, Any]
    labels: Any

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, start: int, count: int) -> dict[str, Any]:
        """Return ``count`` rows of each input, starting over after the last."""
        places = np.arange(start, start + count) % len(self)
        return {name: np.ascontiguousarray(array[places]) for name, array in self.inputs.items()}

    def right(self, answers: Any) -> float:  # noqa: ANN401  an array of any kind
        """Return the share of correct answers to all rows, in order; NaN is never correct.

        Raises:
            ConfigError: The answers do not fit the rows and labels.
            FunctionFault: All answers contain NaN.
        """
        problems = Problems()
        if len(answers) != len(self):
            given = f"{len(answers)} answers"
            problems.add("model", given, f"one for each of {len(self)} rows")
        elif answers.ndim > 1:
            classes = answers.reshape(len(self), -1).shape[1]
            lowest, highest = int(self.labels.min()), int(self.labels.max())
            if highest >= classes or lowest < 0:
                expected = f"numbers from 0 to {classes - 1}, as the model has {classes} classes"
                problems.add(LABELS, lowest if lowest < 0 else highest, expected)
            scores = answers.reshape(len(self), -1)
            unclear = np.isnan(scores).any(axis=1)
            if unclear.all():
                msg = "its outputs for the validation set are all NaN"
                raise FunctionFault(msg)
            answers = np.where(unclear, -1, scores.argmax(axis=1))
        elif answers.dtype.kind not in "iu":
            expected = "scores of classes, or whole numbers"
            problems.add("model", f"answers of type {answers.dtype}", expected)
        problems.raise_if_any()
        return float(np.mean(answers == self.labels))


def read_validation(path: Path, signature: Signature) -> ValidationSet:
    """Read a validation set written by ``numpy.savez``.

    Raises:
        ConfigError: The file is invalid; lists all problems.
    """
    arrays = _arrays(path)
    problems = Problems()
    labels = arrays.pop(LABELS, None)
    wanted = signature.inputs
    for name in wanted.keys() - arrays.keys():
        problems.missing(f"{path}: {name}", "an array for this input of the model")
    for name in arrays.keys() - wanted.keys():
        problems.unknown(name, [*wanted, LABELS], within=f"{path}: ")
    if labels is None:
        problems.missing(f"{path}: {LABELS}", "an array of the correct labels")
    elif labels.ndim != 1 or labels.dtype.kind not in "iu":
        given = f"{labels.dtype} of shape {labels.shape}"
        problems.add(f"{path}: {LABELS}", given, "whole numbers, one for each row")
    elif not len(labels):
        problems.add(
            f"{path}: {LABELS}", "no rows", "at least one row; the validation set is empty"
        )
    for name in wanted.keys() & arrays.keys():
        _check(f"{path}: {name}", arrays[name], wanted[name], labels, problems)
    problems.raise_if_any()
    typed = {name: arrays[name].astype(spec.dtype, copy=False) for name, spec in wanted.items()}
    return ValidationSet(typed, labels)


def _arrays(path: Path) -> dict[str, Any]:
    problems = Problems()
    expected = "a file that numpy.savez wrote, with an array for each input and `labels`"
    try:
        if not zipfile.is_zipfile(path):
            problems.add("--validation", path, expected, "" if path.exists() else "it is missing")
            problems.raise_if_any()
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        problems.add("--validation", path, f"{expected}, of numbers or texts", "it is damaged")
        raise ConfigError(problems.found) from error


def _check(path: str, array: Any, spec: TensorSpec, labels: Any, problems: Problems) -> None:  # noqa: ANN401
    """Add problems if an array does not have one row per label, or does not fit the input."""
    rows = len(array) if array.ndim else 0
    if labels is not None and labels.ndim == 1 and rows != len(labels):
        problems.add(path, f"{rows} rows", f"{len(labels)}, one for each label")
    sizes = zip(array.shape[1:], spec.shape[1:], strict=False)
    if array.ndim != len(spec.shape) or any(isinstance(w, int) and w != g for g, w in sizes):
        problems.add(path, f"shape {list(array.shape)}", f"{spec.sizes}, as the model expects")
    if not np.can_cast(array.dtype, spec.dtype, "same_kind"):
        fix = f"convert it, for example with .astype(numpy.{spec.dtype})"
        problems.add(path, array.dtype, f"{spec.dtype}, as the model expects", fix)
