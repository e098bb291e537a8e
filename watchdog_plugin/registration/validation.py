"""The validation set: a file of NumPy arrays, one for each input of the model, and `labels`.

An answer is right if the largest number of its first output is at its label's place, or, where the
model answers with whole numbers, one an input, if it is the label.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from carpool.errors import ConfigError
from carpool.strict import Problems

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from watchdog_plugin.tensors import Signature

__all__ = ["LABELS", "ValidationSet", "read_validation"]

LABELS = "labels"


@dataclass(frozen=True)
class ValidationSet:
    """Inputs with their labels.

    Attributes:
        inputs: By name, a row each.
        labels: The right answers.
    """

    inputs: Mapping[str, Any]
    labels: Any

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, start: int, count: int) -> dict[str, Any]:
        """So many rows of each input; from the first again after the last."""
        places = np.arange(start, start + count) % len(self)
        return {name: np.ascontiguousarray(array[places]) for name, array in self.inputs.items()}

    def right(self, answers: Any) -> float:  # noqa: ANN401  an array of any kind
        """Share of the answers to all rows, in order, that are right.

        Raises:
            ConfigError: the labels are not among what the model can answer.
        """
        problems = Problems()
        if len(answers) != len(self):
            given = f"{len(answers)} answers"
            problems.add("model", given, f"one for each of {len(self)} rows")
        elif answers.ndim > 1:
            classes = answers.reshape(len(self), -1).shape[1]
            highest = int(self.labels.max())
            if highest >= classes or int(self.labels.min()) < 0:
                expected = f"numbers from 0 to {classes - 1}, as the model has {classes} classes"
                problems.add(LABELS, highest, expected)
            answers = answers.reshape(len(self), -1).argmax(axis=1)
        elif answers.dtype.kind not in "iu":
            expected = "scores of classes, or whole numbers"
            problems.add("model", f"answers of type {answers.dtype}", expected)
        problems.raise_if_any()
        return float(np.mean(answers == self.labels))


def read_validation(path: Path, signature: Signature) -> ValidationSet:
    """Read a file as ``numpy.savez`` writes it.

    Raises:
        ConfigError: everything that is wrong with it.
    """
    problems = Problems()
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile, AttributeError) as error:
        expected = "a file that numpy.savez wrote, with an array for each input and `labels`"
        problems.add("--validation", path, expected, str(error))
        problems.raise_if_any()
        raise ConfigError([]) from error  # never reached: the problem has been raised
    labels = arrays.pop(LABELS, None)
    wanted = signature.inputs
    for name in wanted.keys() - arrays.keys():
        problems.add(f"{path}: {name}", "", "an array for this input of the model", "it is missing")
    for name in arrays.keys() - wanted.keys():
        problems.unknown(name, [*wanted, LABELS], within=f"{path}: ")
    if labels is None:
        problems.add(f"{path}: {LABELS}", "", "an array of the right answers", "it is missing")
    elif labels.ndim != 1 or labels.dtype.kind not in "iu":
        given = f"{labels.dtype} of shape {labels.shape}"
        problems.add(f"{path}: {LABELS}", given, "whole numbers, one a row")
    elif not len(labels):
        problems.add(
            f"{path}: {LABELS}", "no rows", "at least one row; the validation set is empty"
        )
    else:
        for name, array in arrays.items():
            if name in wanted and (not array.ndim or len(array) != len(labels)):
                given = f"{len(array) if array.ndim else 0} rows"
                problems.add(f"{path}: {name}", given, f"{len(labels)}, as there are labels")
    problems.raise_if_any()
    typed = {name: arrays[name].astype(spec.dtype, copy=False) for name, spec in wanted.items()}
    return ValidationSet(typed, labels)
