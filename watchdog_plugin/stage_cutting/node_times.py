"""Measures how long each node of a model takes, with ONNX Runtime's own profile.

The runtime fuses nodes: a fused one has the name of one of them, or of one of their outputs, and
its time is assigned to that node. Nodes that the runtime adds, such as changes of layout, are
assigned to none.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnxruntime as ort

from watchdog_plugin.onnx.threads import set_threads

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from watchdog_plugin.protocols.tensors import Arrays

__all__ = ["node_of", "node_seconds"]

_RUNS = 5
_ENDING = "_kernel_time"


def node_seconds(path: Path, nodes: Sequence[Any], feeds: Arrays, threads: int) -> list[float]:
    """Return the seconds of each of ``nodes``, the minimum of several runs.

    Args:
        path: The ONNX model.
        nodes: The nodes to measure.
        feeds: Inputs to run it with.
        threads: Number of cores it may use.
    """
    of_name = {name: number for number, node in enumerate(nodes) for name in node.output if name}
    of_name |= {node.name: number for number, node in enumerate(nodes) if node.name}
    with tempfile.TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        set_threads(options, threads)
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        for _ in range(_RUNS):
            session.run(None, dict(feeds))
        events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    return _least(events, of_name, len(nodes))


def _least(
    events: Sequence[Mapping[str, Any]], of_name: Mapping[str, int], count: int
) -> list[float]:
    least: dict[str, float] = {}
    for event in events:
        name = str(event.get("name", ""))
        if event.get("cat") == "Node" and name.endswith(_ENDING):
            seconds = float(event["dur"]) / 1e6
            least[name] = min(seconds, least.get(name, seconds))
    total = [0.0] * count
    for name, least_s in least.items():
        number = node_of(name.removesuffix(_ENDING), of_name)
        if number is not None:
            total[number] += least_s
    return total if any(total) else [1e-6] * count  # too quick for the clock: all alike


def node_of(name: str, of_name: Mapping[str, int]) -> int | None:
    """Return the index of a fused node's original; None if unknown.

    Each fusion appends a suffix to the name.
    """
    while name not in of_name:
        shorter = name.rpartition("_")[0]
        if not shorter:
            return None
        name = shorter
    return of_name[name]
