"""Chooses the latency model of a function: the configured model, or one learned from its batches.

A configured model is corrected by measurements; one that was learned from batches corrects itself.
Variants of a model have execution times of their own, and are not corrected here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.latency.linear import Linear
from carpool.variants.variant_set import VariantSet
from scaler.control.calibration.corrected_model import Correction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.latency import LatencyModel
    from carpool.plan import Plan
    from carpool.sync import FrontReport
    from scaler.control.sidecar_reports import SidecarReports

__all__ = ["LatencySource", "MeasuredModel"]

_MOVED = 0.15
_LEAST_S = 1e-5
_LOADED_S = 1.0


class LatencySource:
    """Execution times of one function.

    Args:
        given: The configured model; None if there is none.
        reports: Reports of its sidecars.

    Attributes:
        given: The configured model.
        correction: Correction of the model.
    """

    def __init__(self, given: LatencyModel | None, reports: SidecarReports) -> None:
        self.given = given
        self.correction = Correction()
        self._reports = reports
        self._learned = MeasuredModel(1.0)

    def sized(self, cpu: float, gpu: float) -> None:
        """Set the size of instances according to the function's settings."""
        self._learned = MeasuredModel(cpu, gpu)

    def model(self) -> LatencyModel | None:
        """Return the model to plan with; None while execution times are unknown."""
        plain = self._plain()
        if plain is None:
            return None
        corrected = self.correction.of(plain)
        return plain if self.given is None or isinstance(plain, VariantSet) else corrected

    def compare(self, report: FrontReport, plan: Plan | None) -> None:
        """Compare measured execution times with the model."""
        model = self._plain()
        if model is None or isinstance(model, VariantSet) or plan is None:
            return
        sizes = {each.name: (each.cpu, each.gpu) for each in plan.classes}
        for each in report.classes:
            if each.name in sizes:
                self.correction.observe(
                    model, sizes[each.name], each.batches, each.item_count, each.exec_s
                )

    def _plain(self) -> LatencyModel | None:
        reports = self._reports
        return self.given or self._learned.model(reports.lines, reports.batches, reports.load_s())


class MeasuredModel:
    """Latency model of one function, built from what its sidecars have measured.

    They learn a line of execution times by batch size for each class of instances. The size of an
    instance is that of the function's settings, as a line does not tell how times change with
    cores. The model stays the same object while the line changes little, because planners cache by
    its identity.

    Args:
        cpu: Cores of an instance.
        gpu: Percent of a GPU of an instance.
    """

    def __init__(self, cpu: float, gpu: float = 0.0) -> None:
        self._cpu = cpu
        self._gpu = gpu
        self._model: Linear | None = None

    def model(
        self,
        lines: Mapping[str, tuple[float, float]],
        batches: Mapping[str, int],
        load_s: float,
    ) -> LatencyModel | None:
        """Return the model of the class that has executed the most batches; None if unknown.

        Args:
            lines: Base and per-item seconds by class.
            batches: Number of executed batches by class.
            load_s: Seconds that an instance takes to load.
        """
        if not lines:
            return None
        name = max(lines, key=lambda name: (batches.get(name, 0), name))
        base_s, per_item_s = (round(max(seconds, _LEAST_S), 6) for seconds in lines[name])
        fitted = Linear(base_s, per_item_s, self._cpu, self._gpu, load_s)
        if self._model is None or _differ(self._model, fitted):
            self._model = fitted
        return self._model


def _differ(one: Linear, other: Linear) -> bool:
    """Return whether execution times at some batch size, or loading times, differ noticeably."""
    for batch in (1, 8, 64):
        was_s, is_s = one.base_s + one.per_item_s * batch, other.base_s + other.per_item_s * batch
        if abs(is_s - was_s) > _MOVED * was_s:
            return True
    return abs(one.load_s - other.load_s) > _LOADED_S
