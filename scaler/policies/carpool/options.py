"""List the possible instances of a function: every size that responds in time.

A batch may take more than half the objective here: one of several instances becomes free before an
execution time has passed, and `capacity` computes how much sooner.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from carpool.scaling import VariantSet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from carpool.scaling import FunctionLoad, LatencyModel, Size

__all__ = ["WAY", "Option", "options"]

WAY = 0.02  # share of an objective for everything besides waiting and execution
_UNMEASURED = 0.1  # relative increase of execution times while their errors are unknown
_MOST = 0.95  # share of an objective that the execution of a batch may take


@dataclass(frozen=True, slots=True)
class Option:
    """One size of instance.

    Attributes:
        size: Size with the execution time of a full batch, raised by the model's error.
        single_s: Execution time of a batch of one on it.
    """

    size: Size
    single_s: float

    @property
    def item_s(self) -> float:
        """Execution time that each further request adds to a batch."""
        batch = self.size.batch
        return (self.size.exec_s - self.single_s) / (batch - 1) if batch > 1 else 0.0


def options(load: FunctionLoad) -> tuple[Option, ...]:
    """Return all sizes fast enough for the tightest application and accurate enough for all."""
    return tuple(
        option
        for variant, model, accuracy in _variants(load)
        for option in _of_model(load, variant, model, accuracy)
    )


def _variants(load: FunctionLoad) -> list[tuple[str, LatencyModel, float]]:
    model = load.model
    if not isinstance(model, VariantSet):
        return [("", model, 1.0)]
    least = max([app.accuracy for app in load.apps], default=0.0)
    named = {app.variant for app in load.apps if app.variant}
    return [
        (each.name, model.of(each.name) or model, each.accuracy)
        for each in model.variants
        if each.accuracy >= least and (not named or named == {each.name})
    ]


def _of_model(
    load: FunctionLoad, variant: str, model: LatencyModel, accuracy: float
) -> Iterator[Option]:
    raised = 1 + (_UNMEASURED if load.error is None else max(load.error, 0.0))
    left_s = (1 - WAY) * load.tightest_s
    for batch, cpu, gpu in model.configurations(load.max_batch):
        size = load.size(batch, cpu, gpu, variant)
        single_s = model.predict(1, cpu, gpu, load.percentile)
        if size is None:
            continue
        exec_s = raised * size.exec_s
        if not exec_s <= (left_s if batch == 1 else _MOST * left_s):
            continue
        single_s = exec_s if single_s is None or not 0 < single_s < math.inf else raised * single_s
        known = replace(
            size, exec_s=exec_s, rate_rps=batch / exec_s, min_rps=0.0, accuracy=accuracy
        )
        yield Option(known, min(single_s, exec_s))
