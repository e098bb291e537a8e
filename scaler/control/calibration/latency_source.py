"""How long a function's batches take: by the model that is named, or by what was measured.

A model that was named is corrected by measurements; one that was learned from batches corrects
itself. Variants of a model have execution times of their own, and no correction here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.latency.variant_set import VariantSet
from scaler.control.calibration.corrected_model import Correction
from scaler.control.calibration.measured_model import MeasuredModel

if TYPE_CHECKING:
    from carpool.latency import LatencyModel
    from carpool.plan import Plan
    from carpool.sync import FrontReport
    from scaler.control.sidecar_reports import SidecarReports

__all__ = ["LatencySource"]


class LatencySource:
    """What is known of one function's execution times.

    Args:
        given: The model that is named; None: there is none.
        reports: What its sidecars say.

    Attributes:
        given: The model that is named.
        correction: How far off it is.
    """

    def __init__(self, given: LatencyModel | None, reports: SidecarReports) -> None:
        self.given = given
        self.correction = Correction()
        self._reports = reports
        self._learned = MeasuredModel(1.0)

    def sized(self, cpu: float, gpu: float) -> None:
        """Instances have this size, as far as the function's settings say."""
        self._learned = MeasuredModel(cpu, gpu)

    def model(self) -> LatencyModel | None:
        """What plans are made with; None while nothing is known."""
        plain = self._plain()
        if plain is None:
            return None
        corrected = self.correction.of(plain)
        return plain if self.given is None or isinstance(plain, VariantSet) else corrected

    def compare(self, report: FrontReport, plan: Plan | None) -> None:
        """Hold measured execution times against the model."""
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
