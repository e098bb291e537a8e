"""A chain of stages: each reads what it needs from the outputs of earlier stages.

Needs no onnx package, as the runtime inside a function uses it, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from watchdog_plugin.onnx.session import OnnxSession
    from watchdog_plugin.protocols.tensors import Arrays

__all__ = ["Chain"]


class Chain:
    """A model in stages.

    Args:
        stages: The stages, in order.
        outputs: Names of the outputs of the whole model.
        inputs: Names of the inputs of the whole model; None for those of the first stage.

    Raises:
        ValueError: A stage's input or an output of the model is not made by any earlier stage.
    """

    def __init__(
        self,
        stages: Sequence[OnnxSession],
        outputs: Sequence[str],
        inputs: Sequence[str] | None = None,
    ) -> None:
        self._stages = stages
        made = set(stages[0].signature.inputs if inputs is None else inputs)
        for number, stage in enumerate(stages, 1):
            _check(f"stage {number} reads", stage.signature.inputs, made)
            made.update(stage.signature.outputs)
        _check("the model answers with", outputs, made)
        self._kept: list[set[str]] = []
        wanted = set(outputs)
        for stage in reversed(stages):
            self._kept.append(set(wanted))
            wanted |= stage.signature.inputs.keys()
        self._kept.reverse()

    def __len__(self) -> int:
        return len(self._stages)

    def stage(self, number: int) -> OnnxSession:
        """Return one of the stages."""
        return self._stages[number]

    def run(self, number: int, values: Arrays) -> Arrays:
        """Run one stage, and return the values that later stages or the outputs need."""
        stage, kept = self._stages[number], self._kept[number]
        made = stage.run({name: values[name] for name in stage.signature.inputs})
        return {name: value for name, value in (*values.items(), *made.items()) if name in kept}

    def run_all(self, values: Arrays) -> Arrays:
        """Return the outputs for these inputs."""
        for number in range(len(self._stages)):
            values = self.run(number, values)
        return values


def _check(what: str, names: Iterable[str], made: Collection[str]) -> None:
    missing = [name for name in names if name not in made]
    if missing:
        msg = f"{what} {', '.join(missing)}: expected one of {', '.join(sorted(made))}"
        raise ValueError(msg)
