"""Stages in a row: each reads what it needs of what those before have made.

Needs no onnx package: the runtime inside a function uses it as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from watchdog_plugin.onnx_session import OnnxSession
    from watchdog_plugin.tensors import Arrays

__all__ = ["Chain"]


class Chain:
    """A model in stages.

    Args:
        stages: in order.
        outputs: what the whole model answers with.
    """

    def __init__(self, stages: Sequence[OnnxSession], outputs: Sequence[str]) -> None:
        self._stages = stages
        self._kept: list[set[str]] = []
        wanted = set(outputs)
        for stage in reversed(stages):
            self._kept.append(set(wanted))
            wanted |= stage.signature.inputs.keys()
        self._kept.reverse()

    def __len__(self) -> int:
        return len(self._stages)

    def run(self, number: int, values: Arrays) -> Arrays:
        """What is alive after a stage, of what was alive before it and what it makes."""
        stage, kept = self._stages[number], self._kept[number]
        made = stage.run({name: values[name] for name in stage.signature.inputs})
        return {name: value for name, value in (*values.items(), *made.items()) if name in kept}

    def run_all(self, values: Arrays) -> Arrays:
        """The outputs for these inputs."""
        for number in range(len(self._stages)):
            values = self.run(number, values)
        return values
