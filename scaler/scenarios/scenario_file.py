"""Reads, checks and builds scenarios from files, including the files that they name.

Parsing is strict: unknown keys, missing files and malformed values are reported together, each with
its line. Relative paths are relative to the scenario file. Which policies exist, and what
parameters they take, is checked elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from carpool.arrivals.markov import mmpp2
from carpool.arrivals.processes import Poisson, read_trace
from carpool.errors import ConfigError, Problem
from carpool.latency.coefficients_file import read_coefficients
from carpool.latency.linear import Linear
from carpool.latency.table import read_table
from carpool.predictor.onnx_latency import read_operators
from carpool.validation import yaml_values
from carpool.validation.problems import Problems, nearest
from carpool.variants.variant_file import read_variants
from carpool.variants.variant_set import VariantSet, model_of
from scaler.planning import cost
from scaler.planning.cost import MB_PER_GB, Prices
from scaler.planning.placement import Node
from scaler.scenarios import shipped
from scaler.scenarios.scenario import App, Function, Scenario
from scaler.scenarios.scenario_validation import SCENARIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from carpool.arrivals.processes import ArrivalProcess
    from carpool.latency import LatencyModel, Resources
    from carpool.validation.yaml_values import Document

__all__ = ["read_scenario"]

_MS_PER_S = 1000.0

T = TypeVar("T")


def read_scenario(path: Path) -> Scenario:
    """Read a scenario and the files it names.

    A name without a folder may be that of a scenario that comes with Carpool, such as ``osvt``.

    Raises:
        ConfigError: All problems in them, each with file and line.
    """
    document = yaml_values.load(_found(path))
    document.check(SCENARIO)
    return _Reader(document).read()


def _found(path: Path) -> Path:
    known = shipped.find(path)
    if not known.exists():
        expected = f"a file, or one of the scenarios {', '.join(shipped.names())}"
        raise ConfigError([Problem("scenario", str(path), expected)])
    return known


class _Reader:
    """Builds a scenario from a well-formed document, with checks that involve several keys."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._problems = Problems()
        self._data: Any = document.data

    def read(self) -> Scenario:
        data = self._data
        prices = Prices(**data.get("prices", {}))
        self._attempt("prices", lambda: cost.billing(prices))
        models = {name: self._model(name, item) for name, item in data["models"].items()}
        functions = [
            self._function(f"functions[{index}]", item, models)
            for index, item in enumerate(data["functions"])
        ]
        nodes = tuple(self._nodes())
        self._check_prices(prices, [each for each in functions if each], nodes)
        self._problems.raise_if_any()
        return Scenario(
            path=self._document.path,
            nodes=nodes,
            prices=prices,
            models={name: model for name, model in models.items() if model},
            functions=tuple(function for function in functions if function),
            policies={name: params or {} for name, params in data.get("policies", {}).items()},
            **{name: data[name] for name in ("horizon_s", "seed") if name in data},
        )

    def _check_prices(
        self, prices: Prices, functions: Sequence[Function], nodes: Sequence[Node]
    ) -> None:
        """Refuse prices that are zero for some instances only."""
        with_gpus = not nodes or any(node.gpus for node in nodes)
        lacking = {
            name: function.name
            for function in functions
            for size in _sizes(function)
            if (with_gpus or not size.gpu) and (name := cost.lacking_price(prices, size))
        }
        for name, function in lacking.items():
            expected = (
                f"a price above 0, as `{function}` can have such sizes and others cost something"
            )
            self._wrong(f"prices.{name}", "0", expected)

    def _nodes(self) -> list[Node]:
        groups = self._data.get("cluster", {}).get("nodes", ())
        return [
            Node(
                name=f"{group['name']}-{number}",
                cpu=group["cpus"],
                gpus=group.get("gpus", 0),
                memory_mb=group.get("memory_gb", float("inf")) * MB_PER_GB,
                gpu_slots=group.get("gpu_slots", 0),
            )
            for group in groups
            for number in range(group.get("count", 1))
        ]

    def _model(self, name: str, data: Mapping[str, Any]) -> LatencyModel | None:
        path = f"models.{name}"
        common = {key: data[key] for key in ("load_s", "memory_mb") if key in data}
        if "table" in data:
            return self._from_file(
                f"{path}.table", data["table"], lambda file: read_table(file, **common)
            )
        if "variants" in data:
            return self._from_file(
                f"{path}.variants",
                data["variants"],
                lambda file: VariantSet(read_variants(file), data.get("default", "")),
            )
        if "coefficients" in data:
            return self._from_file(
                f"{path}.coefficients",
                data["coefficients"],
                lambda file: read_coefficients(file, **common),
            )
        if "operators" in data:
            return self._operators(path, data, common)
        line = dict(data["linear"])
        base_s, per_item_s = (line.pop(key) / _MS_PER_S for key in ("base_ms", "per_item_ms"))
        if base_s == per_item_s == 0:
            self._wrong(f"{path}.linear", "0 and 0", "base_ms or per_item_ms above 0")
            return None
        return Linear(base_s, per_item_s, **line, **common)

    def _operators(
        self, path: str, data: Mapping[str, Any], common: Mapping[str, float]
    ) -> LatencyModel | None:
        database = None
        if "database" in data:
            database = self._from_file(f"{path}.database", data["database"], lambda file: file)
            if database is None:
                return None
        return self._from_file(
            f"{path}.operators",
            data["operators"],
            lambda file: read_operators(
                file, database, data.get("dims"), data.get("measured", ()), **common
            ),
        )

    def _function(
        self, path: str, data: Mapping[str, Any], models: Mapping[str, LatencyModel | None]
    ) -> Function | None:
        name = data["model"]
        if name not in models:
            expected = f"a model of the scenario: {', '.join(models) or 'it has none'}"
            self._wrong(f"{path}.model", name, expected, nearest(name, models))
        slo_s = data["slo_ms"] / _MS_PER_S
        apps = [
            self._app(f"{path}.apps[{index}]", item, slo_s)
            for index, item in enumerate(data["apps"])
        ]
        model = models.get(name)
        if model is None:
            return None
        self._check_accuracy(path, data["apps"], model)
        return Function(
            name=data["name"],
            model_name=name,
            model=model,
            slo_s=slo_s,
            percentile=data.get("percentile", 0.99),
            max_batch=data.get("max_batch", 32),
            apps=tuple(app for app in apps if app),
            **{name: data[name] for name in ("executor", "stages") if name in data},
        )

    def _app(self, path: str, data: Mapping[str, Any], slo_s: float) -> App | None:
        arrivals = self._arrivals(f"{path}.arrivals", data["arrivals"])
        if arrivals is None:
            return None
        own_s = data["slo_ms"] / _MS_PER_S if "slo_ms" in data else slo_s
        return App(data["name"], own_s, arrivals, data.get("accuracy", 0.0))

    def _check_accuracy(
        self, path: str, apps: Sequence[Mapping[str, Any]], model: LatencyModel
    ) -> None:
        """Refuse accuracies higher than that of every variant, or without variants."""
        variants = model.variants if isinstance(model, VariantSet) else ()
        best = max([variant.accuracy for variant in variants], default=0.0)
        for index, app in enumerate(apps):
            if app.get("accuracy", 0.0) > best:
                expected = f"at most {best:g}, the most that a variant of the model has"
                self._wrong(f"{path}.apps[{index}].accuracy", str(app["accuracy"]), expected)

    def _arrivals(self, path: str, data: Mapping[str, Any]) -> ArrivalProcess | None:
        if "poisson" in data:
            return Poisson(data["poisson"]["rate"])
        if "mmpp2" in data:
            return self._attempt(f"{path}.mmpp2", lambda: mmpp2(**data["mmpp2"]))
        scale = data.get("scale", 1.0)
        return self._from_file(f"{path}.trace", data["trace"], lambda file: read_trace(file, scale))

    def _from_file(self, path: str, name: str, read: Callable[[Path], T]) -> T | None:
        file = self._document.path.parent / name
        if not file.is_file():
            there = [entry.name for entry in file.parent.iterdir()] if file.parent.is_dir() else []
            self._wrong(path, name, "an existing file", nearest(file.name, there))
            return None
        return self._problems.attempt(lambda: read(file))

    def _attempt(self, path: str, build: Callable[[], T]) -> T | None:
        try:
            return build()
        except ConfigError as error:
            self._problems.extend(f"{self._document.name(path)}.", error)
            return None

    def _wrong(self, path: str, value: str, expected: str, hint: str = "") -> None:
        self._problems.add(self._document.name(path), value, expected, hint)


def _sizes(function: Function) -> Iterator[Resources]:
    """Yield the possible sizes of an instance."""
    model = function.model
    names = [each.name for each in model.variants] if isinstance(model, VariantSet) else [""]
    for each in (model_of(model, name) for name in names):
        for batch, cpu, gpu in each.configurations(function.max_batch):
            yield each.resources(batch, cpu, gpu)
