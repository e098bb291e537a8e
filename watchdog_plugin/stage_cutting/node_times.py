"""Measures how long each node of a model takes, with ONNX Runtime's own profile.

The runtime fuses nodes: a fused one has the name of one of them, or of one of their outputs, and
its time is assigned to that node. Nodes that the runtime adds, such as changes of layout, are
assigned to none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from watchdog_plugin.profiling.profiled_session import ProfiledSession

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from watchdog_plugin.protocols.tensors import Arrays

__all__ = ["node_of", "node_seconds"]

_RUNS = 5


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
    least: dict[str, float] = {}
    with ProfiledSession(path.read_bytes(), path.parent, threads, operators=True) as session:
        for _ in range(_RUNS):
            session.run_s(feeds)
        for timed in (each for run in session.operator_times() for each in run):
            least[timed.name] = min(timed.seconds, least.get(timed.name, timed.seconds))
    total = [0.0] * len(nodes)
    for name, least_s in least.items():
        number = node_of(name, of_name)
        if number is not None:
            total[number] += least_s
    return total if any(total) else [1e-6] * len(nodes)  # too quick for the clock: all alike


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
