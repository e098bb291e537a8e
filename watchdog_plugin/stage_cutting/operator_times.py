"""Predicts the times of nodes and stages from operator profiles, with reproducible results.

Where a model is cut must not depend on the load of the machine at that moment. So nothing is run
here: the time of a stage is the database's prediction for the operators that the runtime makes of
its file, including those caused by the cut, such as other layouts and sums that are not fused.
Seconds are rounded to nanoseconds, so that the order of addition makes no difference.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from carpool.errors import ConfigError, Problem
from carpool.onnx_graph.model_file import read_onnx
from carpool.onnx_graph.optimised import optimised
from carpool.predictor.fit_database import read_model, usual_database
from carpool.predictor.profile_file import opened
from carpool.processor import processor, runtime
from watchdog_plugin.stage_cutting.balance import HANDOVER_S
from watchdog_plugin.stage_cutting.node_sequence import reads
from watchdog_plugin.stage_cutting.node_times import node_of
from watchdog_plugin.stage_cutting.stage_measurements import Meter, StageMeasurements

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from carpool.onnx_graph.optimised import Optimised
    from carpool.predictor.latency_model import OperatorLatencyModel
    from watchdog_plugin.onnx.session import OnnxSession
    from watchdog_plugin.protocols.tensors import Arrays
    from watchdog_plugin.stage_cutting.stage_measurements import Pieces

__all__ = ["OperatorTimes"]

_FUSED = "fused "  # before the name of the first of the nodes
_LAYOUT = "com.microsoft.nchwc"
_BATCHES = (1, 2, 4, 8, 16, 32, 64)


class OperatorTimes(Meter):
    """Predicts times instead of measuring them.

    Args:
        database: Profile database; None for the user's own, or else the package's.

    Raises:
        ConfigError: The given file is missing, or is not a profile database.
    """

    def __init__(self, database: Path | None = None) -> None:
        if database:  # checked now; later, everything would be measured instead
            with opened(database):
                pass
        self._database = database or usual_database()

    def node_seconds(
        self, path: Path, nodes: Sequence[Any], whole: OnnxSession, feeds: Arrays, threads: int
    ) -> list[float]:
        """Return the times of nodes, as `Meter.node_seconds` does.

        A fused operator counts as the first of the nodes it is made of.

        Raises:
            ConfigError: The database cannot predict them.
        """
        made, model = self._read(path, whole, feeds)
        _seconds(path, model, 1, threads)
        finder = _NodeFinder(nodes, made.model)
        total = [0.0] * len(nodes)
        operators_s = model.operator_seconds(1, threads)
        for node, seconds in zip(made.model.graph.node, operators_s, strict=True):
            number = finder.first(node)
            if number is not None:
                total[number] += seconds
        return [round(seconds, 9) for seconds in total]

    def trial(self, pieces: Pieces, *, brief: bool) -> StageMeasurements:
        """Return the times of stages, as `Meter.trial` does, including the handover to each.

        Raises:
            ConfigError: The database cannot predict them.
        """
        del brief
        values, threads = pieces.values, pieces.threads
        whole_s = self._batch_s(pieces.path, pieces.whole, values, threads)
        stage_s = []
        for number, file in enumerate(pieces.files):
            stage = pieces.chain.stage(number)
            between_s = HANDOVER_S if number else 0.0
            stage_s.append(between_s + self._batch_s(file, stage, values, threads))
            values = pieces.chain.run(number, values)
        return StageMeasurements(whole_s, tuple(stage_s), sum(stage_s) / whole_s - 1)

    def batch_seconds(
        self, path: Path, whole: OnnxSession, feeds: Arrays, threads: int
    ) -> dict[int, float]:
        """Return the times of the batch sizes that the database can predict."""
        _, model = self._read(path, whole, feeds)
        predicted = {size: model.predict(size, threads, 0.0) for size in _BATCHES}
        return {size: round(seconds, 9) for size, seconds in predicted.items() if seconds}

    def _batch_s(self, path: Path, session: OnnxSession, feeds: Arrays, threads: int) -> float:
        _, model = self._read(path, session, feeds)
        return _seconds(path, model, 1, threads)

    def _read(
        self, path: Path, session: OnnxSession, feeds: Arrays
    ) -> tuple[Optimised, OperatorLatencyModel]:
        """Return the model as optimised by the runtime, and its latency model from the database.

        Runs of the model as a whole are left out, as there are none of its stages.
        """
        made = optimised(path, read_onnx(path, _free_sizes(session, feeds)))
        model, _ = read_model(self._database, made.graph, processor(), runtime())
        if unknown := model.unknown_operators():
            op_types, fix = ", ".join(unknown), f"carpool predict {path} measures them"
            expected = "operators that the profile database knows"
            raise ConfigError([Problem(str(path), op_types, expected, fix)])
        return made, replace(model, runs={})


def _free_sizes(session: OnnxSession, feeds: Arrays) -> dict[str, int]:
    """Return the sizes of free dimensions other than the batch, by input and axis."""
    return {
        f"{name}.{axis}": feeds[name].shape[axis]
        for name, spec in session.signature.inputs.items()
        for axis, size in enumerate(spec.shape)
        if axis and not isinstance(size, int)
    }


def _seconds(path: Path, model: OperatorLatencyModel, batch: int, threads: int) -> float:
    seconds = model.predict(batch, threads, 0.0)
    if seconds is None:
        given = f"a batch of {batch} on {threads} threads"
        expected = "what the profile database knows"
        raise ConfigError([Problem(str(path), given, expected, "carpool profile measures it")])
    return round(seconds, 9)


class _NodeFinder:
    """Finds the nodes of a file that the operators of its optimised model were made of.

    Args:
        nodes: The nodes of the file.
        model: The model that the runtime has made of them.
    """

    def __init__(self, nodes: Sequence[Any], model: Any) -> None:  # noqa: ANN401  onnx has no types
        self._nodes = nodes
        self._maker = {name: number for number, node in enumerate(nodes) for name in node.output}
        self._named = self._maker | {n.name: number for number, n in enumerate(nodes) if n.name}
        self._left = {name for node in model.graph.node for name in (*node.input, *node.output)}

    def first(self, operator: Any) -> int | None:  # noqa: ANN401  onnx ships no types
        """Return the first node that an operator was made of; None if the runtime has added it."""
        named = node_of(operator.name.removeprefix(_FUSED), self._named)
        if named is not None:
            return named
        made = {self._maker[name] for name in operator.output if name in self._maker}
        candidates = [] if operator.domain == _LAYOUT else list(made)
        while candidates:  # back to whatever tensors the runtime has left
            read = [name for name in reads(self._nodes[candidates.pop()]) if name not in self._left]
            before = {self._maker[name] for name in read if name in self._maker} - made
            made |= before
            candidates += before
        return min(made, default=None)
