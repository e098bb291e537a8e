"""Chooses the latency model of a function: the configured model, or one learned from its batches.

A configured model is corrected by measurements; one that was learned from batches corrects itself.
Variants of a model have execution times of their own, and are not corrected here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.variants.variant_set import VariantSet
from scaler.control.calibration.corrected_model import Correction
from scaler.control.calibration.measured_model import MeasuredModel

if TYPE_CHECKING:
    from carpool.latency import LatencyModel
    from carpool.plan import Plan
    from carpool.sync import FrontReport
    from scaler.control.sidecar_reports import SidecarReports

__all__ = ["LatencySource"]


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
