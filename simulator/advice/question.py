"""The question: a trace, a model, an objective and prices, and the scenarios made from them."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from carpool import durations
from carpool.arrivals.processes import read_trace
from carpool.errors import ConfigError, Problem
from carpool.latency.coefficients_file import read_coefficients
from carpool.latency.linear import Linear
from carpool.latency.table import read_table
from carpool.validation.problems import Problems
from carpool.validation.text_file import read_text
from carpool.variants.variant_file import read_variants
from carpool.variants.variant_set import VariantSet
from scaler.scenarios import shipped
from scaler.scenarios.scenario import Scenario
from simulator.advice.trace_parts import cut
from simulator.model_sizes import quickest_s
from simulator.objective_check import impossible_objective

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from carpool.arrivals.processes import Trace
    from carpool.latency import LatencyModel
    from scaler.planning.cost import Prices
    from scaler.scenarios.scenario import Function
    from simulator.advice.trace_parts import Part

__all__ = ["MODELS", "Question", "gpu_gb", "read_load", "read_model", "with_objective"]

MODELS = (
    "a table FILE.csv, coefficients or variants FILE.json, FILE.onnx, or a linear model such as "
    "30ms+6ms"
)
_LINE = re.compile(r"([^+]+)\+([^+]+)")
_COARSE_S = 120.0
_LEAST_SLO_S = 0.01  # shortest default objective, as the network takes part of it
_USUAL_TIMES = 4.0  # default objective, in shortest latencies: the matrix's medium objective


@dataclass(frozen=True)
class Question:
    """The trace, model, objective and prices to give advice on.

    Attributes:
        trace: The whole trace.
        trace_path: File that the trace was read from.
        scale: Factor applied to the trace's rates.
        function: The function with its objective; its application receives the whole trace.
        model: The model's entry in a scenario.
        prices: Prices of instances.
    """

    trace: Trace
    trace_path: Path
    scale: float
    function: Function
    model: Mapping[str, Any]
    prices: Prices

    @property
    def allowed(self) -> float:
        """Share of requests that may miss the objective."""
        return 1 - self.function.percentile

    @property
    def notes(self) -> list[str]:
        """Return the limits of the advice, as sentences."""
        steps = [b - a for a, b in zip(self.trace.starts_s, self.trace.starts_s[1:], strict=False)]
        longest_s = max(steps, default=0.0)
        if longest_s < _COARSE_S:
            return []
        sentence = (
            f"Rows of the trace are up to {durations.format(round(longest_s))} long; jumps within "
            "a row are lost, so in use more requests may miss their objective."
        )
        return [sentence]

    def scenario(self, part: Part, policies: Mapping[str, Mapping[str, Any]]) -> Scenario:
        """Return the scenario of one part of the trace, the same for every policy."""
        (app,) = self.function.apps
        replayed = dataclasses.replace(app, arrivals=cut(self.trace, part))
        function = dataclasses.replace(self.function, apps=(replayed,))
        return Scenario(
            path=self.trace_path,
            nodes=(),
            prices=self.prices,
            models={self.function.model_name: self.function.model},
            functions=(function,),
            policies=policies,
            horizon_s=part.length_s,
            seed=part.seed,
        )


def read_load(path: Path, scale: float) -> Trace:
    """Read a trace file and scale its rates.

    Raises:
        ConfigError: everything that is wrong with the file, or it contains no request.
    """
    trace = read_trace(shipped.find_file(path), scale)
    if not trace.mean_rate > 0:
        expected = "a rate above 0 in some row"
        raise ConfigError([Problem(str(path), "no requests", expected)])
    return trace


def read_model(text: str, load_s: float) -> tuple[LatencyModel, dict[str, Any]]:
    """Read a latency model from a file or a line of text; return it and its scenario entry.

    Raises:
        ConfigError: it is none of `MODELS`, or everything that is wrong with the file.
    """
    line, load = _LINE.fullmatch(text), {"load_s": load_s}
    if line and not Path(text).exists():
        try:
            base_s, per_item_s = (durations.parse(part.strip()) for part in line.groups())
        except ValueError as error:
            raise ConfigError([Problem("--model", text, MODELS, str(error))]) from error
        entry = {"base_ms": 1000 * base_s, "per_item_ms": 1000 * per_item_s}
        return Linear(base_s, per_item_s, load_s=load_s), {"linear": entry, **load}
    path = shipped.find_file(Path(text))
    if not path.is_file():
        raise ConfigError([Problem("--model", text, MODELS, "there is no such file")])
    where = str(path.resolve())
    if path.suffix == ".csv":
        return read_table(path, load_s=load_s), {"table": where, **load}
    if path.suffix == ".onnx":
        from carpool.predictor.onnx_latency import read_operators  # noqa: PLC0415  needs onnx

        return read_operators(path, load_s=load_s), {"operators": where, **load}
    if path.suffix == ".json":
        if _has_variants(path):
            return VariantSet(read_variants(path)), {"variants": where}
        return read_coefficients(path, load_s=load_s), {"coefficients": where, **load}
    raise ConfigError([Problem("--model", text, MODELS)])


def gpu_gb(function: Function) -> float:
    """Return the memory of a whole GPU in gigabytes if shares are sold by memory, else 0."""
    model = function.model
    if isinstance(model, VariantSet):
        return 0.0
    sizes = (model.resources(*each) for each in model.configurations(function.max_batch))
    return next((100 * size.gpu_gb / size.gpu for size in sizes if size.gpu_gb), 0.0)


def with_objective(function: Function, slo_s: float | None) -> Function:
    """Return the function with a feasible objective; for None, four times its lowest latency.

    Raises:
        ConfigError: no size of the model answers within the objective, or none is accurate enough.
    """
    (app,) = function.apps
    model, problems = function.model, Problems()
    variants = model.variants if isinstance(model, VariantSet) else ()
    most = max([variant.accuracy for variant in variants], default=0.0)
    if app.accuracy > most:
        expected = f"at most {most:g}, the most that a variant of the model has"
        problems.add("--accuracy", app.accuracy, expected)
        problems.raise_if_any()
    if slo_s is None:
        least_s = quickest_s(function)
        usual_s = round(_USUAL_TIMES * least_s, 3) if math.isfinite(least_s) else 0.0
        slo_s = max(usual_s, _LEAST_SLO_S)
    if impossible := impossible_objective("--slo", function, slo_s):
        raise ConfigError([impossible])
    apps = (dataclasses.replace(app, slo_s=slo_s),)
    return dataclasses.replace(function, slo_s=slo_s, apps=apps)


def _has_variants(path: Path) -> bool:
    """Return whether a JSON file lists variants; if it is none, its reader reports that."""
    try:
        document = json.loads(read_text(path, Problems()) or "")
    except ValueError:
        return False
    return isinstance(document, dict) and "variants" in document
