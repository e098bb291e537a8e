"""A folder of stages: ``stages.json`` and the models that it names.

The one part of this package that runs inside a function: it needs no onnx package.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from carpool.lazy_batching.batch_times import every_size
from watchdog_plugin.function import LoadError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["LIST", "StageFolder"]

LIST = "stages.json"


@dataclass(frozen=True, slots=True)
class StageFolder:
    """Which stages a model was cut into.

    Attributes:
        files: one a stage, in order, relative to the folder.
        model_sha256: of the model that was cut, as one that was trained anew has the same size.
        loss: the stages' time over the whole model's, less one, at a batch of one.
        batch_s: seconds of the whole model by size of batch, as they are predicted; empty: nobody
            can say.
    """

    files: tuple[str, ...]
    model_sha256: str
    loss: float
    batch_s: Mapping[int, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls, model: Path, files: Sequence[str], loss: float, batch_s: Mapping[int, float]
    ) -> Self:
        """The stages of ``model`` in ``files``."""
        return cls(tuple(files), _sha256(model), loss, batch_s)

    def seconds(self, batch_max: int) -> list[float]:
        """Of batches of the whole model up to a size, as predicted; empty: nobody can say."""
        return every_size(self.batch_s, batch_max) if self.batch_s else []

    def write(self, folder: Path) -> None:
        """Write the list into ``folder``, and take away what only a former list names."""
        former = _names(folder / LIST)
        (folder / LIST).write_text(json.dumps(asdict(self), indent=2) + "\n", "utf-8")
        for name in former:
            if name not in self.files:
                (folder / name).unlink(missing_ok=True)

    @classmethod
    def read(cls, folder: Path, model: Path) -> Self | None:
        """The stages of ``model`` in ``folder``; None if there are none.

        Raises:
            LoadError: they are another model's, one is missing, or this is no list of stages.
        """
        path = folder / LIST
        if not path.exists():
            return None
        fix = f"run carpool stages {model} --out {folder}"
        try:
            document = json.loads(path.read_text("utf-8"))
            known = (document["model_sha256"], document["loss"], document.get("batch_s", {}))
            stages = cls(tuple(document["files"]), *known[:2], _by_size(known[2]))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            msg = f"{str(path)!r}: {error!r} where a list of stages was expected; {fix}"
            raise LoadError(msg) from error
        if not stages.files or list(stages.files) != _names(path):
            msg = f"{str(path)!r}: files is {document['files']!r}: expected names of files; {fix}"
            raise LoadError(msg)
        if missing := [name for name in stages.files if not (folder / name).is_file()]:
            msg = f"{str(path)!r} names {', '.join(missing)}: no such file in its folder; {fix}"
            raise LoadError(msg)
        if _sha256(model) != stages.model_sha256:
            msg = f"{str(path)!r}: these are not the stages of {str(model)!r} as it is now; {fix}"
            raise LoadError(msg)
        return stages


def _by_size(listed: Mapping[str, float]) -> dict[int, float]:
    return {int(size): float(seconds) for size, seconds in listed.items()}


def _names(path: Path) -> list[str]:
    """The files of a list's own folder that it names; none if it is no list."""
    try:
        files = json.loads(path.read_text("utf-8"))["files"]
    except (OSError, ValueError, TypeError, KeyError):
        return []
    listed = files if isinstance(files, list) else []
    return [name for name in listed if isinstance(name, str) and Path(name).name == name]


def _sha256(model: Path) -> str:
    with model.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
