"""The model that the live benchmarks run, and the scenario made from its measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import onnx
import yaml

from benchmarks.live_measuring import FUNCTION
from examples.models import mlp

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.live_measuring import Model

__all__ = ["BODY", "Size", "model_folder", "written_scenario"]

_LAYERS = (32, 5000, 5000, 32)
_HANDLER = """\
import numpy as np

def preprocess(item):
    return np.frombuffer(item.body, np.float32)

def postprocess(outputs):
    return next(iter(outputs.values())).tobytes()
"""
BODY = bytes(4 * _LAYERS[0])


class Size(NamedTuple):
    """Size of the instances, and the objective."""

    batch: int
    cpu: float
    slo_ms: float


def model_folder(folder: Path, layers: Sequence[int] = _LAYERS) -> Path:
    """Write the function's folder into ``folder``."""
    home = folder / FUNCTION
    home.mkdir()
    onnx.save(mlp(layers, 1), home / "model.onnx")
    (home / "handler.py").write_text(_HANDLER)
    return home


def written_scenario(
    folder: Path,
    model: Model,
    rates: Sequence[tuple[int, float]],
    horizon_s: int,
    size: Size,
    policies: Mapping[str, Mapping[str, Any]] | None = None,
) -> Path:
    """Write the scenario of a trace with these rates."""
    rows = ["start_s,requests_per_minute"]
    rows += [f"{at_s},{60 * rate_rps:.3f}" for at_s, rate_rps in rates]
    rows.append(f"{horizon_s},0")
    (folder / "bursty.csv").write_text("\n".join(rows) + "\n")
    line = {"base_ms": model.base_s * 1e3, "per_item_ms": model.per_item_s * 1e3, "cpu": size.cpu}
    document: dict[str, Any] = {
        "models": {"model": {"linear": line, "load_s": model.load_s}},
        "functions": [
            {
                "name": FUNCTION,
                "model": "model",
                "slo_ms": size.slo_ms,
                "max_batch": size.batch,
                "apps": [{"name": "web", "arrivals": {"trace": "bursty.csv"}}],
            }
        ],
        "policies": policies or {},
        "horizon_s": horizon_s,
        "seed": 1,
    }
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path
