"""A folder of stages: ``stages.json`` and the models that it names.

The one part of this package that runs inside a function: it needs no onnx package.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Self

from watchdog_plugin.function import LoadError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LIST", "StageFolder"]

LIST = "stages.json"


@dataclass(frozen=True, slots=True)
class StageFolder:
    """Which stages a model was cut into.

    Attributes:
        files: one a stage, in order, relative to the folder.
        model_bytes: size of the model that was cut, to notice that it is another by now.
        loss: the stages' time over the whole model's, less one, at a batch of one.
    """

    files: tuple[str, ...]
    model_bytes: int
    loss: float

    def write(self, folder: Path) -> None:
        """Write the list into ``folder``."""
        (folder / LIST).write_text(json.dumps(asdict(self), indent=2) + "\n", "utf-8")

    @classmethod
    def read(cls, folder: Path, model: Path) -> Self | None:
        """The stages of ``model`` in ``folder``; None if there are none.

        Raises:
            LoadError: they are another model's, or what is there is no list of stages.
        """
        path = folder / LIST
        if not path.exists():
            return None
        mend = f"run carpool stages {model} --out {folder}"
        try:
            document = json.loads(path.read_text("utf-8"))
            stages = cls(tuple(document["files"]), document["model_bytes"], document["loss"])
        except (ValueError, TypeError, KeyError) as error:
            msg = f"{str(path)!r}: {error!r} where a list of stages was expected; {mend}"
            raise LoadError(msg) from error
        size = model.stat().st_size
        if size != stages.model_bytes:
            msg = (
                f"{str(path)!r} was cut from a model of {stages.model_bytes} bytes, "
                f"{str(model)!r} has {size}: expected stages of this model; {mend}"
            )
            raise LoadError(msg)
        return stages
