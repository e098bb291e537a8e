"""From a model's file to a folder of stages: as many as lose little.

Tries the number that is asked for first, then fewer. The runtime's profile says where the time
goes; what stages really take corrects it once, as fused nodes hide it; and where too much is lost,
narrower cuts are tried before fewer ones.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from watchdog_plugin.onnx_session import OnnxSession
from watchdog_plugin.stages import sample
from watchdog_plugin.stages.balance import choose
from watchdog_plugin.stages.cut import ROWS, Cutter
from watchdog_plugin.stages.folder import StageFolder
from watchdog_plugin.stages.node_times import node_seconds
from watchdog_plugin.stages.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from watchdog_plugin.stages.balance import Point

__all__ = ["Cut", "Planner"]

_DEAR = (1.0, 1.5, 2.0, 4.0)
_FEWER = 0.75


@dataclass(frozen=True, slots=True)
class Cut:
    """A way to cut the model, tried.

    Attributes:
        points: where.
        trial: what was measured.
    """

    points: tuple[Point, ...]
    trial: Trial

    @property
    def stages(self) -> int:
        """How many there are."""
        return len(self.points) + 1


class Planner:
    """Looks for the cuts of one model.

    Args:
        path: the model's file.
        threads: cores a run may use.
        sizes: of free dimensions besides the batch, by name.

    Raises:
        LoadError: no model, or one that cannot be run.
    """

    def __init__(self, path: Path, threads: int, sizes: Mapping[str, int]) -> None:
        self._path = path
        self._threads = threads
        self._whole = OnnxSession(path, threads)
        signature = self._whole.signature
        self._tries = [sample.feeds(signature, rows, sizes) for rows in (1, *ROWS, 5)]
        model = onnx.load(path)
        tries = tuple(
            sample.feeds(signature, rows, sizes, more)
            for rows, more in zip(ROWS, (0, 1), strict=True)
        )
        try:
            self._cutter = Cutter(model, (tries[0], tries[1]))
        except Exception:  # noqa: BLE001  a free dimension may depend on another: leave them
            self._cutter = Cutter(model, (self._tries[1], self._tries[2]))
        nodes = self._cutter.line.nodes
        self._node_s = node_seconds(path, nodes, self._tries[0], threads)

    @property
    def cuttable(self) -> int:
        """How many points there are at which the model could be cut."""
        return len(self._cutter.points(self._node_s))

    def best(self, stages: int, loss_max: float) -> tuple[Cut | None, list[Cut]]:
        """The most stages, up to so many, that lose no more than ``loss_max``; and all tried."""
        tried: list[Cut] = []
        while stages > 1:
            for dear in _DEAR:
                cut = self._try(stages, dear)
                if cut is None:
                    return None, tried
                tried.append(cut)
                if cut.trial.loss <= loss_max:
                    return cut, tried
            stages = min(int(stages * _FEWER), tried[-1].stages - 1)
        return None, tried

    def write(self, cut: Cut, folder: Path) -> StageFolder:
        """Put the stages and their list into ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        files = self._save(cut.points, folder)
        stages = StageFolder(
            tuple(path.name for path in files), self._path.stat().st_size, cut.trial.loss
        )
        stages.write(folder)
        return stages

    def _try(self, stages: int, dear: float) -> Cut | None:
        """Choose, measure, correct the nodes' times by what was measured, and choose again."""
        first = self._chosen(stages, dear)
        if not first:
            return None
        trial = self._trial(first, brief=True)
        self._correct(first, trial.stage_s)
        points = self._chosen(stages, dear)
        return Cut(tuple(points), self._trial(points))

    def _chosen(self, stages: int, dear: float) -> list[Point]:
        points = self._cutter.points(self._node_s, dear)
        return choose(points, sum(self._node_s), stages)

    def _correct(self, points: Sequence[Point], stage_s: Sequence[float]) -> None:
        ends = [0, *(point.after for point in points), len(self._node_s)]
        for start, end, measured_s in zip(ends, ends[1:], stage_s, strict=False):
            believed_s = sum(self._node_s[start:end])
            if believed_s > 0:
                factor = measured_s / believed_s
                self._node_s[start:end] = [factor * node_s for node_s in self._node_s[start:end]]

    def _trial(self, points: Sequence[Point], *, brief: bool = False) -> Trial:
        with tempfile.TemporaryDirectory() as folder:
            files = self._save(points, Path(folder))
            return Trial.of(self._whole, files, self._tries, self._threads, brief=brief)

    def _save(self, points: Sequence[Point], folder: Path) -> list[Path]:
        files = []
        for number, stage in enumerate(self._cutter.stages(points), 1):
            files.append(folder / f"{self._path.stem}.{number}.onnx")
            files[-1].write_bytes(stage.SerializeToString())
        return files
