"""Plans the stages of a model file, as many as possible at a low loss, and writes their folder.

It tries the requested number first, then fewer. Node times come from operator profiles, and are
corrected once by those of the stages, as fused nodes hide them. If the loss is too large, narrower
cuts are tried before fewer ones. Nothing is measured, so that the same file is always cut the same
way; only if operators are missing from the profiles are times measured on this machine.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from google.protobuf.message import DecodeError

from carpool.errors import ConfigError
from carpool.onnx_graph.model_file import LARGEST_FILE_BYTES
from carpool.onnx_graph.weights import weight_bytes, weight_files
from carpool.processor import processor
from watchdog_plugin.function import LoadError
from watchdog_plugin.onnx.session import OnnxSession
from watchdog_plugin.stage_cutting import sample
from watchdog_plugin.stage_cutting.balance import choose
from watchdog_plugin.stage_cutting.cut import ROWS, Cutter
from watchdog_plugin.stage_cutting.folder import StageFolder, sha256
from watchdog_plugin.stage_cutting.operator_times import OperatorTimes
from watchdog_plugin.stage_cutting.stage_measurements import Meter, Pieces, checked_chain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from watchdog_plugin.protocols.tensors import Signature
    from watchdog_plugin.stage_cutting.balance import Point
    from watchdog_plugin.stage_cutting.stage_measurements import StageMeasurements

__all__ = ["Cut", "CutPlanner"]

_HANDOVER_WEIGHTS = (1.0, 1.5, 2.0, 4.0)
_FEWER = 0.75
_SHORTENS = 0.25  # least share of the wait that a useful cut saves; else one stage has nearly all
_HOPELESS = 10.0  # narrower cuts cannot compensate a loss this many times too large


@dataclass(frozen=True, slots=True)
class Cut:
    """A way to cut the model that has been tried.

    Attributes:
        points: Points at which it is cut.
        trial: Times of its stages.
    """

    points: tuple[Point, ...]
    trial: StageMeasurements

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.points) + 1

    @property
    def shortens(self) -> float:
        """Share by which it shortens the mean wait, compared with waiting for the whole model."""
        stage_s = self.trial.stage_s
        return 1 - sum(seconds**2 for seconds in stage_s) / sum(stage_s) ** 2


class CutPlanner:
    """Searches for the best cuts of one model.

    Args:
        path: The model file.
        threads: Number of cores a run may use.
        sizes: Sizes of free dimensions other than the batch, by name.
        meter: Provides the times of nodes and stages; None to use the operator profiles.

    Attributes:
        unpredicted: Why times were measured; empty if they were predicted.

    Raises:
        LoadError: The model is missing, cannot be run, or has no dimension of such a name.
    """

    def __init__(
        self, path: Path, threads: int, sizes: Mapping[str, int], meter: Meter | None = None
    ) -> None:
        self._path = path
        self._meter = meter or OperatorTimes()
        self.unpredicted = ""
        self._threads = threads
        _check_size(path)
        self._whole = OnnxSession(path, threads)
        signature = self._whole.signature
        _check_names(signature, sizes)
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
        self._known: dict[tuple[int, ...], Cut] = {}  # by the places where it cuts
        try:
            self._node_s = self._nodes_s()
        except ConfigError as error:
            self._measure(error)

    @property
    def cuttable(self) -> int:
        """Number of points at which the model could be cut."""
        return len(self._cutter.points(self._node_s))

    def best(self, stages: int, loss_max: float) -> tuple[Cut | None, list[Cut]]:
        """Return the cut with the most stages, and all cuts that were tried.

        It has at most ``stages`` stages, a low loss, and shortens waits; None if there is no such
        cut.
        """
        try:
            return self._best(stages, loss_max)
        except ConfigError as error:
            self._measure(error)
            return self._best(stages, loss_max)

    def _nodes_s(self) -> list[float]:
        nodes, feeds = self._cutter.sequence.nodes, self._tries[0]
        return self._meter.node_seconds(self._path, nodes, self._whole, feeds, self._threads)

    def _measure(self, error: ConfigError) -> None:
        """Measure times from now on, as the profiles cannot predict them."""
        self.unpredicted, self._meter = str(error), Meter()
        self._known.clear()
        self._node_s = self._nodes_s()

    def _best(self, stages: int, loss_max: float) -> tuple[Cut | None, list[Cut]]:
        tried: list[Cut] = []
        while stages > 1:
            for handover_weight in _HANDOVER_WEIGHTS:
                cut = self._try(stages, handover_weight)
                if cut is None:
                    return None, tried
                if cut not in tried:
                    tried.append(cut)
                if cut.trial.loss <= loss_max and cut.shortens >= _SHORTENS:
                    return cut, tried
                if cut.trial.loss > _HOPELESS * loss_max:
                    break
            stages = _fewer(tried[-1], stages, loss_max)
        return None, tried

    def write(self, cut: Cut, folder: Path) -> StageFolder:
        """Write the stages and their list into ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        files = self._save(cut.points, folder)
        stages = StageFolder(
            tuple(path.name for path in files),
            sha256(self._path),
            cut.trial.loss,
            self._batch_s(),
            self._threads,
            processor(),
            {name: sha256(self._path.parent / name) for name in weight_files(self._path)},
        )
        stages.write(folder)
        return stages

    def _batch_s(self) -> dict[int, float]:
        feeds = self._tries[0]
        return self._meter.batch_seconds(self._path, self._whole, feeds, self._threads)

    def _try(self, stages: int, handover_weight: float) -> Cut | None:
        """Choose points, correct the node times by the times of the stages, and choose again."""
        first = self._chosen(stages, handover_weight)
        if not first:
            return None
        trial = self._trial(first, brief=True)
        self._correct(first, trial.stage_s)
        points = tuple(self._chosen(stages, handover_weight))
        places = tuple(point.after for point in points)
        if places not in self._known:
            self._known[places] = Cut(points, self._trial(points))
        return self._known[places]

    def _chosen(self, stages: int, handover_weight: float) -> list[Point]:
        points = self._cutter.points(self._node_s, handover_weight)
        return choose(points, sum(self._node_s), stages)

    def _correct(self, points: Sequence[Point], stage_s: Sequence[float]) -> None:
        ends = [0, *(point.after for point in points), len(self._node_s)]
        for start, end, measured_s in zip(ends, ends[1:], stage_s, strict=False):
            believed_s = sum(self._node_s[start:end])
            if believed_s > 0:
                factor = measured_s / believed_s
                self._node_s[start:end] = [factor * node_s for node_s in self._node_s[start:end]]

    def _trial(self, points: Sequence[Point], *, brief: bool = False) -> StageMeasurements:
        with tempfile.TemporaryDirectory() as folder:
            files = self._save(points, Path(folder))
            chain = checked_chain(self._whole, files, self._tries, self._threads)
            pieces = (self._path, self._whole, files, chain, self._tries[0], self._threads)
            return self._meter.trial(Pieces(*pieces), brief=brief)

    def _save(self, points: Sequence[Point], folder: Path) -> list[Path]:
        files = []
        for number, stage in enumerate(self._cutter.stages(points), 1):
            files.append(folder / f"{self._path.stem}.{number}.onnx")
            files[-1].write_bytes(stage.SerializeToString())
        return files


def _fewer(cut: Cut, stages: int, loss_max: float) -> int:
    """Return the number of stages to try next; less than 2 to give up.

    Each cut is assumed to cost about the same, plus or minus a half.
    """
    bearable = 1 + int(2 * (cut.stages - 1) * loss_max / max(cut.trial.loss, 1e-9))
    fewer = min(int(stages * _FEWER), cut.stages - 1)
    return min(fewer, max(2, bearable))


def _check_size(path: Path) -> None:
    """Refuse a model whose stages would be too large to write, before it is loaded."""
    try:
        size = weight_bytes(path)
    except (OSError, DecodeError):  # whatever is wrong with it, the runtime says
        return
    if size > LARGEST_FILE_BYTES:
        msg = (
            f"model {str(path)!r}: {size} bytes of weights: expected at most {LARGEST_FILE_BYTES}, "
            "as ONNX files of stages hold their weights; without stages it runs whole"
        )
        raise LoadError(msg)


def _check_names(signature: Signature, sizes: Mapping[str, int]) -> None:
    free = {
        str(size)
        for spec in signature.inputs.values()
        for size in spec.shape[1:]
        if size is not None and not isinstance(size, int)
    }
    unknown = ", ".join(sorted(set(sizes).difference(free)))
    if unknown:
        known = f"one of {', '.join(sorted(free))}" if free else "none, as it has no other"
        msg = f"no input has a free dimension {unknown} besides the batch: expected {known}"
        raise LoadError(msg)
