"""Coefficient files, read strictly. The only latency module that needs a YAML library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from carpool.latency.coefficients import Coefficients, CpuCoefficients, Curve, GpuCoefficients
from carpool.validation import rules, yaml_values
from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["read_coefficients"]

_ANY_TEXT = rules.text("text", r".*")
_AMOUNT = rules.number("a number of at least 0", lambda value: value >= 0)
_ABOVE_ZERO = rules.number("a number above 0", lambda value: value > 0)
_FACTOR = rules.number("a number of at least 1", lambda value: value >= 1)
_ANY = rules.number("a number", lambda _: True)
_SIZE = rules.number("a whole number of at least 1", lambda value: value >= 1, whole=True)
_COUNT = rules.number("a whole number of at least 0", lambda value: value >= 0, whole=True)

_CURVE_FIELDS = {
    "batch": _SIZE,
    "scale": _AMOUNT,
    "decay_cores": _ABOVE_ZERO,
    "floor": _ABOVE_ZERO,
}
_CURVE = rules.record(_CURVE_FIELDS, frozenset(_CURVE_FIELDS))
_MEMORY = rules.record(
    {"per_item": _AMOUNT, "base": _AMOUNT}, required=frozenset({"per_item", "base"})
)
_CPU = rules.record(
    {"memory_mb": _MEMORY, "mean_s": rules.each(_CURVE), "max_s": rules.each(_CURVE)},
    required=frozenset({"memory_mb", "mean_s", "max_s"}),
)
_GPU = rules.record(
    {
        "device": _ANY_TEXT,
        "memory_mb": _AMOUNT,
        "per_item_s": _AMOUNT,
        "base_s": _ANY,
        "time_slice_s": _ABOVE_ZERO,
        "total_slices_gb": _SIZE,
        "batch_thresholds_for_extra_gb": rules.each(_COUNT),
        "max_margin": _FACTOR,
        "max_batch": _SIZE,
    },
    required=frozenset({"per_item_s", "base_s", "time_slice_s", "total_slices_gb"}),
)
_FILE = rules.record({"model": _ANY_TEXT, "cpu": _CPU, "gpu": _GPU}, required=frozenset())


def read_coefficients(path: Path, load_s: float = 0.0) -> Coefficients:
    """Read a JSON (or YAML) file of coefficients.

    Raises:
        ConfigError: all problems found, each with its line.
    """
    document = yaml_values.load(path)
    document.check(_FILE)
    data: Any = document.data
    problems = Problems()
    if not data.keys() & {"cpu", "gpu"}:
        problems.add("", "neither", "coefficients for cpu, gpu or both")
    cpu = _cpu(data["cpu"], problems) if "cpu" in data else None
    gpu = _gpu(data["gpu"], problems) if "gpu" in data else None
    document.raise_if_any(problems)
    return Coefficients(cpu, gpu, load_s)


def _cpu(data: Mapping[str, Any], problems: Problems) -> CpuCoefficients:
    curves = {name: _curves(data[name], f"cpu.{name}", problems) for name in ("mean_s", "max_s")}
    for name, other in (("mean_s", "max_s"), ("max_s", "mean_s")):
        for batch in sorted(curves[other].keys() - curves[name].keys()):
            problems.add(f"cpu.{name}", "", f"a row for batch {batch}, as cpu.{other} has one")
    if not (curves["mean_s"] or curves["max_s"]):
        problems.add("cpu.mean_s", "no rows", "at least one row")
    memory = data["memory_mb"]
    return CpuCoefficients(curves["mean_s"], curves["max_s"], memory["per_item"], memory["base"])


def _curves(rows: list[Mapping[str, Any]], path: str, problems: Problems) -> dict[int, Curve]:
    curves: dict[int, Curve] = {}
    for index, row in enumerate(rows):
        if row["batch"] in curves:
            problems.add(
                f"{path}[{index}].batch", row["batch"], "a batch size that no other row has"
            )
        curves[row["batch"]] = Curve(row["scale"], row["decay_cores"], row["floor"])
    return curves


def _gpu(data: Mapping[str, Any], problems: Problems) -> GpuCoefficients:
    thresholds = tuple(data.get("batch_thresholds_for_extra_gb", ()))
    if list(thresholds) != sorted(set(thresholds)):
        path, expected = "gpu.batch_thresholds_for_extra_gb", "batch sizes in ascending order"
        problems.add(path, ", ".join(map(str, thresholds)), expected)
    optional = {
        name: data[name] for name in ("memory_mb", "max_margin", "max_batch") if name in data
    }
    gpu = GpuCoefficients(
        data["per_item_s"],
        data["base_s"],
        data["time_slice_s"],
        data["total_slices_gb"],
        thresholds,
        **optional,
    )
    if gpu.whole_s(1) <= 0:  # of a fitted line a term may be below 0, a latency may not
        expected = "more than -per_item_s, so that a batch of one takes some time"
        problems.add("gpu.base_s", gpu.base_s, expected)
    return gpu
