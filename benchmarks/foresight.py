"""The policy `carpool` with a perfect forecast: the most that any forecast could gain.

It knows the largest rate from now until one second after an instance requested now has loaded.
Where the load is not a trace, as with MMPP, it forecasts nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool.arrivals.processes import Trace
from scaler.policies.carpool.demand import Demand, Demands
from scaler.policies.carpool.policy import Carpool
from simulator.matrix.cells import Cell, catalogue

if TYPE_CHECKING:
    from carpool.arrivals.processes import ArrivalProcess

__all__ = ["Foresight"]

_STEP_S, _MARGIN_S = 0.25, 1.5


class Foresight(Carpool):
    """`Carpool` with knowledge of the coming load in a cell of the matrix."""

    @dataclass(frozen=True)
    class Params:
        """Which cell it is in.

        Attributes:
            cell: Its name.
            horizon_s: Simulated seconds.
            seed: Of the requests.
        """

        cell: str
        horizon_s: float
        seed: int

    def __init__(self, params: Params) -> None:
        usual = Carpool.Params()
        super().__init__(usual)
        cell = Cell(*params.cell.split("/"))
        scenario = catalogue().scenario(cell, params.horizon_s, params.seed)
        self._demands = _Known(scenario.functions[0].apps[0].arrivals, usual)


class _Known(Demands):
    def __init__(self, arrivals: ArrivalProcess, params: Carpool.Params) -> None:
        super().__init__(params.smoothing_s, params.reserve, trend=params.trend, surge=params.surge)
        self._arrivals = arrivals

    def of(self, function: str, measured_rps: float, load_s: float, now_s: float) -> Demand:
        """Return the demand as `Demands.of` does, or the coming rate if that is higher."""
        usual = super().of(function, measured_rps, load_s, now_s)
        if not isinstance(self._arrivals, Trace):
            return usual
        steps = range(int((load_s + _MARGIN_S) / _STEP_S) + 1)
        coming_rps = max(self._arrivals.rate(now_s + _STEP_S * step) for step in steps)
        return usual if coming_rps <= usual.rate_rps else Demand(coming_rps, 0.0, jumped=False)
