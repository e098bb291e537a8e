"""The cells of the matrix: combinations of models, loads, objectives and billing rules."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scaler.planning.cost import Prices
from scaler.scenarios.scenario import App, Function, Scenario
from simulator.matrix.models import MODELS, OBJECTIVES, measured_models
from simulator.matrix.traces import TRACES, measured_traces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from simulator.matrix.models import Model
    from simulator.matrix.traces import Maker

__all__ = ["BILLINGS", "POLICIES", "Catalogue", "Cell", "catalogue"]

BILLINGS = {
    "reserved": Prices("reserved", cpu_core_s=9.0e-5, gpu_percent_s=7.0e-6),
    "pay-per-use": Prices("pay-per-use", cpu_core_s=9.0e-5, gpu_percent_s=7.0e-6, call=9.0e-7),
}
POLICIES: dict[str, dict[str, str]] = {
    "infless": {"policy": "infless", "aim": "resources"},
    "infless-cost": {"policy": "infless", "aim": "cost"},
    "batch": {"policy": "batch"},
    "harmonybatch": {"policy": "harmonybatch"},
    "infaas": {"policy": "infaas"},
    "openfaas": {"policy": "openfaas"},
    "carpool": {"policy": "carpool"},
}
_PERCENTILE, _MAX_BATCH = 0.99, 32


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination, by the names of its parts."""

    trace: str
    model: str
    objective: str
    billing: str

    @property
    def name(self) -> str:
        """The name, such as ``bursty/gpu/tight/reserved``."""
        return f"{self.trace}/{self.model}/{self.objective}/{self.billing}"


@dataclass(frozen=True)
class Catalogue:
    """Traces and models that cells are made from.

    Attributes:
        traces: Traces by name.
        models: Models by name.
    """

    traces: Mapping[str, Maker]
    models: Mapping[str, Model]

    def cells(self, share: float = 1.0) -> list[Cell]:
        """Return a share of all cells, balanced over traces, models, objectives and billing rules.

        The first sixth contains every trace with every model once, with objectives and billing
        rules in rotation; each further sixth combines them with other objectives and rules.
        """
        ordered = [
            ((objective - trace - model) % 3, (billing - trace - model // 2) % 2, cell)
            for trace, trace_name in enumerate(self.traces)
            for model, model_name in enumerate(self.models)
            for objective, objective_name in enumerate(OBJECTIVES)
            for billing, billing_name in enumerate(BILLINGS)
            for cell in [Cell(trace_name, model_name, objective_name, billing_name)]
        ]
        ordered.sort(key=lambda entry: entry[:2])
        return [cell for *_, cell in ordered][: math.ceil(share * len(ordered) - 1e-9)]

    def scenario(self, cell: Cell, horizon_s: float, seed: int) -> Scenario:
        """Return the scenario to simulate, the same for every policy."""
        model = self.models[cell.model]
        slo_s = model.single_s * OBJECTIVES[cell.objective]
        arrivals = self.traces[cell.trace](model.rate_rps, horizon_s, seed)
        app = App("all", slo_s, arrivals, model.accuracy)
        function = Function("f", cell.model, model.latency, slo_s, _PERCENTILE, _MAX_BATCH, (app,))
        return Scenario(
            path=Path(cell.name),
            nodes=(),
            prices=BILLINGS[cell.billing],
            models={cell.model: model.latency},
            functions=(function,),
            policies=POLICIES,
            horizon_s=horizon_s,
            seed=seed,
        )


def catalogue(data: Sequence[Path] = ()) -> Catalogue:
    """Return built-in traces and models, and those in ``traces/`` and ``profiles/`` of folders."""
    traces, models = dict(TRACES), dict(MODELS)
    for folder in data:
        traces |= measured_traces(folder / "traces")
        models |= measured_models(folder / "profiles")
    return Catalogue(traces, models)
