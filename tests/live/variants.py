"""Train and register a model of two architectures, and write a function that serves it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from carpool.variants.variant_file import read_variants, text_of
from tests.live import stack
from watchdog_plugin.registration.command import main as register

if TYPE_CHECKING:
    from pathlib import Path

    from carpool.variants.variant import Variant

__all__ = ["INPUTS", "body", "write_function", "write_switching", "write_variant"]

INPUTS = 16
_CLASSES = 3
_NETWORKS = {"narrow": (24, 1), "wide": (1000, 2)}  # width and threads
# Policies choose by these times, and those measured on a busy machine can be anything.
_STATED: dict[str, dict[str, Any]] = {
    "narrow": {"load_s": 0.5, "latencies_ms": {"1": 1.0, "4": 1.2, "8": 1.5}},
    "wide": {"load_s": 0.5, "latencies_ms": {"1": 2.0, "4": 2.4, "8": 3.0}},
}


def _points(rows: int, seed: int) -> tuple[Any, Any]:
    """Return points, and their classes by the distance from the centre."""
    x = np.random.default_rng(seed).normal(size=(rows, INPUTS)).astype(np.float32)
    squares = (x[:, :4] ** 2).sum(axis=1)
    return x, np.digitize(squares, [2.75, 4.75])


def _train(path: Path, width: int) -> None:
    """Fit a linear layer to random features: a network with one hidden layer."""
    onnx = pytest.importorskip("onnx")
    x, labels = _points(6000, 1)
    draw = np.random.default_rng(2)
    first = draw.normal(size=(INPUTS, width)).astype(np.float32)
    first[4:] *= 0.05
    shift = draw.normal(size=width).astype(np.float32)
    hidden = np.maximum(x @ first + shift, 0)
    wanted = np.eye(_CLASSES)[labels]
    ridge = hidden.T @ hidden + 1e-2 * len(x) * np.eye(width)
    second = np.linalg.solve(ridge, hidden.T @ wanted).astype(np.float32)
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["a"]),
        helper.make_node("Add", ["a", "shift"], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("MatMul", ["c", "second"], ["y"]),
    ]
    held = {"first": first, "shift": shift, "second": second}
    graph = helper.make_graph(
        nodes,
        "rings",
        [helper.make_tensor_value_info("x", floats, ["n", INPUTS])],
        [helper.make_tensor_value_info("y", floats, ["n", _CLASSES])],
        [onnx.numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )


def write_variant(folder: Path, name: str) -> None:
    """Train and register a network for the function ``rings``, with times that are stated."""
    width, threads = _NETWORKS[name]
    x, labels = _points(1000, 3)
    np.savez(folder / "validation.npz", x=x, labels=labels)
    _train(folder / f"{name}.onnx", width)
    flags = ["--app", "rings", "--validation", str(folder / "validation.npz")]
    flags += ["--threads", str(threads), "--batch", "1,4,8", "--recipes", "plain"]
    registry = folder / "rings" / "variants"
    flags += ["--registry", str(registry)]
    assert 0 == register([str(folder / f"{name}.onnx"), *flags])
    path = registry / "rings" / "variants.json"
    entries = json.loads(path.read_text())["variants"]
    stated = [entry | _STATED[entry["architecture"]] for entry in entries]
    path.write_text(text_of("rings", stated))


def write_function(folder: Path, *networks: str, **annotations: str) -> dict[str, Variant]:
    """Write a stack with the function ``rings`` of these networks or all; return the variants."""
    home = folder / "rings"
    home.mkdir()
    for name in networks or _NETWORKS:
        write_variant(folder, name)
    labels_ = {
        "com.carpool.slo": "2s",
        "com.carpool.batch.max": "8",
        "com.carpool.scale.policy": "infaas",
    }
    function = {
        "lang": "python3-onnx-batch",
        "handler": "./rings",
        "image": "rings:latest",
        "labels": labels_,
        "annotations": {f"com.carpool.{name}": text for name, text in annotations.items()},
    }
    document = {"provider": {"name": "openfaas"}, "functions": {"rings": function}}
    (folder / "stack.yaml").write_text(json.dumps(document))
    return {v.name: v for v in read_variants(home / "variants/rings/variants.json")}


# Cores, and milliseconds of batches: a small instance takes twenty requests a second, a large one
# two hundred.
_SWITCHING = {"small": (0.5, {"1": 50}), "large": (1.0, {"1": 20, "8": 40})}
_SLEEPER = """
import os
import time

MS = {ms}[os.environ.get("model_variant") or "small"]

def handle_batch(items):
    time.sleep(max(ms for size, ms in MS.items() if len(items) >= int(size)) / 1000)
    return [{{"echo": item.bytes().decode(), "batch": len(items)}} for item in items]
"""


def write_switching(folder: Path) -> None:
    """Write a stack file with the function ``echo`` and two variants, which only sleep."""
    stack.write_function(folder, **{"scale.policy": "infaas", "slo": "1s"})
    times = {name: ms for name, (_, ms) in _SWITCHING.items()}
    (folder / "echo" / "handler.py").write_text(_SLEEPER.format(ms=times))
    listed = [
        {"name": name, "accuracy": 0.8, "cpu": cpu, "load_s": 0.5, "latencies_ms": ms}
        for name, (cpu, ms) in _SWITCHING.items()
    ]
    home = folder / "echo" / "variants" / "echo"
    home.mkdir(parents=True)
    (home / "variants.json").write_text(json.dumps({"app": "echo", "variants": listed}))


def body(seed: int = 4, **parameters: object) -> bytes:
    """Return an inference request of one point."""
    x, _ = _points(1, seed)
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, INPUTS], "data": x[0].tolist()}
    data: dict[str, object] = {"inputs": [tensor]}
    if parameters:
        data["parameters"] = parameters
    return json.dumps(data).encode()
