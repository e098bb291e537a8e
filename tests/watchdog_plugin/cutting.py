"""Models cut into stages with given node times, as measured times differ from run to run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from watchdog_plugin.stage_cutting.cut_planner import CutPlanner
from watchdog_plugin.stage_cutting.stage_measurements import Meter, StageMeasurements

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from watchdog_plugin.onnx.session import OnnxSession
    from watchdog_plugin.protocols.tensors import Arrays
    from watchdog_plugin.stage_cutting.stage_measurements import Pieces

__all__ = ["GivenTimes", "cut"]

NODE_S = 1e-3


@dataclass
class GivenTimes(Meter):
    """Meter with nodes and stages of a millisecond each, and a fixed loss per cut."""

    loss_per_cut: float = 0.0

    def node_seconds(
        self, path: Path, nodes: Sequence[Any], whole: OnnxSession, feeds: Arrays, threads: int
    ) -> list[float]:
        """Return a millisecond for each node."""
        del path, whole, feeds, threads
        return [NODE_S] * len(nodes)

    def trial(self, pieces: Pieces, *, brief: bool) -> StageMeasurements:
        """Return measurements with a millisecond for each stage."""
        del brief
        stages = len(pieces.chain)
        return StageMeasurements(
            stages * NODE_S, (NODE_S,) * stages, self.loss_per_cut * (stages - 1)
        )


def cut(model: Path, stages: int, folder: Path) -> list[Path]:
    """Cut ``model`` into ``stages`` stages and return the files written to ``folder``."""
    planner = CutPlanner(model, 1, {}, GivenTimes())
    best, _ = planner.best(stages, 0.0)
    assert best is not None
    assert stages == best.stages
    return [folder / name for name in planner.write(best, folder).files]
