"""Builds the example models into their function folders: ``python -m examples.models [NAME ...]``.

Nothing is downloaded. ``filetype`` is the trained model of the magika package, with two sums in
another layout; ``resnet50`` is the architecture that the onnx package keeps for its tests, with
seeded weights and a free batch size; ``wide`` and ``tiny`` are stacks of layers for load tests;
``recurrent`` and ``transformer`` answer step by step (`sequences`). Seeded weights are the same
everywhere, and answers differ by input; only magika's answers have a meaning.
"""

from __future__ import annotations

import importlib.util
import math
import shutil
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from examples import sequences

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Saver = Callable[[Path], object]

__all__ = [
    "BUILDERS",
    "build",
    "build_all",
    "filetype",
    "magika_folder",
    "mlp",
    "resnet50",
    "starter",
]

FOLDER = Path(__file__).parent

_OPSET = 17
_IR_VERSION = 8  # which all runtimes of recent years can read
_RESIDUAL_GAIN = 0.25  # sixteen blocks add up; each may add little or the activations grow


def mlp(sizes: Sequence[int], seed: int, *, softmax: bool = False) -> onnx.ModelProto:
    """Fully connected layers with ReLU between them, ``x`` [batch, sizes[0]] to ``y``."""
    rng = np.random.default_rng(seed)
    nodes, weights, last = [], [], "x"
    for layer, (width_in, width_out) in enumerate(pairwise(sizes)):
        final = layer == len(sizes) - 2
        weights += [
            _tensor(f"w{layer}", _he(rng, (width_in, width_out), width_in)),
            _tensor(f"b{layer}", rng.normal(0, 0.1, width_out)),
        ]
        out = "y" if final and not softmax else f"h{layer}"
        nodes.append(helper.make_node("Gemm", [last, f"w{layer}", f"b{layer}"], [out]))
        if not final:
            nodes.append(helper.make_node("Relu", [out], [f"a{layer}"]))
        last = out if final else f"a{layer}"
    if softmax:
        nodes.append(helper.make_node("Softmax", [last], ["y"], axis=-1))
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", sizes[0]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", sizes[-1]])],
        weights,
    )
    opset = [helper.make_opsetid("", _OPSET)]
    return helper.make_model(graph, opset_imports=opset, ir_version=_IR_VERSION)


def starter() -> onnx.ModelProto:
    """The model a new python3-onnx-batch function starts with: four numbers, three classes."""
    return mlp((4, 3), seed=1, softmax=True)


def resnet50(seed: int = 50) -> onnx.ModelProto:
    """ResNet-50 with seeded weights and a symbolic batch size.

    The light model of the onnx package has the architecture of ResNet-50, a fixed batch of one, and
    weights that are all 0.02, with which all thousand outputs are equal.
    """
    path = Path(onnx.__file__).parent / "backend/test/data/light/light_resnet50.onnx"
    model = onnx.load(path)
    graph = model.graph
    given = {w.name: numpy_helper.to_array(w) for w in graph.initializer}
    shapes = {name: array.shape for name, array in given.items()}
    fills = [node for node in graph.node if node.op_type == "ConstantOfShape"]
    shapes |= {node.output[0]: tuple(given[node.input[0]].tolist()) for node in fills}
    nodes = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    rng = np.random.default_rng(seed)
    weights = [w for node in nodes for w in _weights(rng, node, shapes)]

    names = {nodes[0].input[0]: "image", graph.output[0].name: "probabilities"}
    for node in nodes:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    ends = [
        helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 224, 224]),
        helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 1000]),
    ]
    graph = helper.make_graph(nodes, "resnet50", ends[:1], ends[1:], weights)
    # From IR version 4 on, weights need not be inputs too, and the runtime may fold them.
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=_IR_VERSION)


def filetype() -> onnx.ModelProto:
    """Return the magika package's trained model, changed so that scores do not depend on the batch.

    Its first layer norm computes a variance as E[x^2] - E[x]^2, whose cancellation amplifies the
    last digit of a sum to 5e-4 of a score. ONNX Runtime adds rows in another order for a batch of
    one than for larger batches, so with the original model, scores of one file differ by that much
    between batches. Here, both sums are always added in the order of a batch of one, for which
    scores are the same to the bit as with the original.
    """
    model = onnx.load(magika_folder() / "model.onnx")
    graph = model.graph
    nodes = [part for node in graph.node for part in _ordered_sum(node)]
    if len(nodes) != len(graph.node) + 2 * 3:
        msg = "the magika package's model is not built as expected: no two sums in LayerNorm_0"
        raise ValueError(msg)
    shapes = {"carpool/rows": [512, -1], "carpool/columns": [-1, 256], "carpool/first": [0]}
    weights = [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in shapes.items()]
    rewritten = helper.make_graph(
        nodes,
        graph.name,
        graph.input,
        graph.output,
        [*graph.initializer, *weights],
    )
    return helper.make_model(
        rewritten, opset_imports=model.opset_import, ir_version=model.ir_version
    )


def magika_folder() -> Path:
    """The folder of the model that the installed magika package uses."""
    spec = importlib.util.find_spec("magika")
    if spec is None or spec.origin is None:
        msg = "the filetype example needs the magika package: pip install magika"
        raise ModuleNotFoundError(msg)
    folders = sorted((Path(spec.origin).parent / "models").glob("standard_v*/model.onnx"))
    return folders[-1].parent


def build(name: str, folder: Path = FOLDER) -> Path:
    """Put the model of example ``name`` into ``folder/name``, unless it is there."""
    path = folder / name / "model.onnx"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        BUILDERS[name](partial)
        partial.replace(path)
    return path


def build_all(names: Sequence[str] = (), folder: Path = FOLDER) -> list[Path]:
    """Build the named examples' models, or all."""
    return [build(name, folder) for name in names or BUILDERS]


def _weights(
    rng: np.random.Generator, node: onnx.NodeProto, shapes: dict[str, tuple[int, ...]]
) -> list[onnx.TensorProto]:
    """Weights with which activations keep their scale through the layers."""
    names = [name for name in node.input if name in shapes]
    if node.op_type == "Reshape":
        return [numpy_helper.from_array(np.array([-1, 2048], np.int64), names[0])]
    if node.op_type == "BatchNormalization":
        gain = _RESIDUAL_GAIN if "branch2c" in names[0] else 1.0
        values = (gain, 0.0, 0.0, 1.0)  # scale, bias, mean, variance
        return [
            _tensor(name, np.full(shapes[name], value))
            for name, value in zip(names, values, strict=True)
        ]
    return [
        _tensor(name, _he(rng, shapes[name], math.prod(shapes[name][1:])))
        if len(shapes[name]) > 1
        else _tensor(name, np.zeros(shapes[name]))
        for name in names
    ]


def _he(rng: np.random.Generator, shape: tuple[int, ...], fan_in: int) -> NDArray[np.float32]:
    return rng.standard_normal(shape, np.float32) * np.float32(math.sqrt(2 / fan_in))


def _tensor(name: str, values: NDArray[np.floating]) -> onnx.TensorProto:
    return numpy_helper.from_array(values.astype(np.float32), name)


def _ordered_sum(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return nodes that compute a sum over rows of [batch, 512, 256] over [512, batch * 256]."""
    if node.op_type != "ReduceSum" or "/LayerNorm_0/" not in node.name:
        return [node]
    (out,) = node.output
    make = helper.make_node
    return [
        make("Transpose", [node.input[0]], [f"{out}/turned"], perm=[1, 0, 2]),
        make("Reshape", [f"{out}/turned", "carpool/rows"], [f"{out}/flat"]),
        make("ReduceSum", [f"{out}/flat", "carpool/first"], [f"{out}/sum"], keepdims=0),
        make("Reshape", [f"{out}/sum", "carpool/columns"], [out]),
    ]


def _save(make: Callable[[], onnx.ModelProto]) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(make().SerializeToString())


def _save_pair(make: Callable[[], tuple[onnx.ModelProto, onnx.ModelProto]]) -> Saver:
    def save(path: Path) -> None:
        encoder, decoder = make()
        path.with_name("decoder.onnx").write_bytes(decoder.SerializeToString())
        path.write_bytes(encoder.SerializeToString())

    return save


def _save_filetype(path: Path) -> None:
    source = magika_folder()
    shutil.copyfile(source / "config.min.json", path.with_name("config.json"))
    types = source.parent.parent / "config" / "content_types_kb.min.json"
    shutil.copyfile(types, path.with_name("content_types.json"))
    path.write_bytes(filetype().SerializeToString())


BUILDERS: dict[str, Saver] = {
    "filetype": _save_filetype,
    "resnet50": _save(resnet50),
    "wide": _save(lambda: mlp((512, 4096, 4096, 512), seed=2)),
    "tiny": _save(lambda: mlp((64, 64, 10), seed=3)),
    "recurrent": _save_pair(sequences.recurrent),
    "transformer": _save_pair(sequences.transformer),
}


def main(argv: Sequence[str]) -> int:
    """Build the models named on the command line, or all of them."""
    unknown = sorted(set(argv) - set(BUILDERS))
    if unknown:
        sys.stderr.write(f"unknown example {', '.join(unknown)}; known: {', '.join(BUILDERS)}\n")
        return 2
    for path in build_all(argv):
        sys.stdout.write(f"{path}  {path.stat().st_size / 1e6:.1f} MB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
