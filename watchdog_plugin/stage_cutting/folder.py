"""A folder of stages: ``stages.json`` and the models that it names.

It is used inside functions, so it does not need the onnx package.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from carpool.lazy_batching.batch_times import every_size
from watchdog_plugin.function import LoadError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LIST", "StageFolder", "sha256"]

LIST = "stages.json"


@dataclass(frozen=True, slots=True)
class StageFolder:
    """The stages that a model was cut into.

    Attributes:
        files: One file name per stage, in order, relative to the folder.
        model_sha256: Digest of the model that was cut, as a retrained model has the same size.
        loss: Time of the stages divided by that of the whole model, minus one, at a batch of one.
        batch_s: Predicted seconds of the whole model by batch size; empty if they are unknown.
        threads, hardware: What ``batch_s`` was predicted for; empty if an earlier version of
            Carpool wrote the list.
        weights_sha256: Digests of the model's external weight files, by name.
    """

    files: tuple[str, ...]
    model_sha256: str
    loss: float
    batch_s: Mapping[int, float] = field(default_factory=dict)
    threads: int = 0
    hardware: str = ""
    weights_sha256: Mapping[str, str] = field(default_factory=dict)

    def seconds(self, batch_max: int, threads: int, hardware: str) -> list[float]:
        """Return the predicted seconds of batches of each size up to ``batch_max``.

        Empty if there are none for this number of threads and hardware.
        """
        known = self.batch_s and (self.threads, self.hardware) == (threads, hardware)
        return every_size(self.batch_s, batch_max) if known else []

    def write(self, folder: Path) -> None:
        """Write the list into ``folder``, and remove files that only a previous list names."""
        former = _names(folder / LIST)
        (folder / LIST).write_text(json.dumps(asdict(self), indent=2) + "\n", "utf-8")
        for name in former:
            if name not in self.files:
                (folder / name).unlink(missing_ok=True)

    @classmethod
    def read(cls, folder: Path, model: Path) -> Self | None:
        """Return the stages of ``model`` in ``folder``; None if there are none.

        Raises:
            LoadError: They belong to another model, one is missing, or the list is invalid.
        """
        path = folder / LIST
        if not path.exists():
            return None
        fix = f"run carpool stages {model} --out {folder}"
        try:
            document = json.loads(path.read_text("utf-8"))
            stages = cls._parsed(document)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            msg = f"{str(path)!r}: {error!r} where a list of stages was expected; {fix}"
            raise LoadError(msg) from error
        if not stages.files or list(stages.files) != _names(path):
            msg = f"{str(path)!r}: files is {document['files']!r}: expected names of files; {fix}"
            raise LoadError(msg)
        if missing := [name for name in stages.files if not (folder / name).is_file()]:
            msg = f"{str(path)!r} names {', '.join(missing)}: no such file in its folder; {fix}"
            raise LoadError(msg)
        if not _is_of(stages, model):
            msg = f"{str(path)!r}: these are not the stages of {str(model)!r} as it is now; {fix}"
            raise LoadError(msg)
        return stages

    @classmethod
    def _parsed(cls, document: Mapping[str, Any]) -> Self:
        return cls(
            tuple(document["files"]),
            document["model_sha256"],
            document["loss"],
            _by_size(document.get("batch_s", {})),
            document.get("threads", 0),
            document.get("hardware", ""),
            dict(document.get("weights_sha256", {})),
        )


def _is_of(stages: StageFolder, model: Path) -> bool:
    """Return whether the model and its external weight files are those that were cut."""
    return sha256(model) == stages.model_sha256 and all(
        (path := model.parent / name).is_file() and sha256(path) == digest
        for name, digest in stages.weights_sha256.items()
    )


def _by_size(listed: Mapping[str, float]) -> dict[int, float]:
    return {int(size): float(seconds) for size, seconds in listed.items()}


def _names(path: Path) -> list[str]:
    """Return the listed file names that are in the list's own folder; empty if it is no list."""
    try:
        files = json.loads(path.read_text("utf-8"))["files"]
    except (OSError, ValueError, TypeError, KeyError):
        return []
    listed = files if isinstance(files, list) else []
    return [name for name in listed if isinstance(name, str) and Path(name).name == name]


def sha256(path: Path) -> str:
    """Return the SHA-256 digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
