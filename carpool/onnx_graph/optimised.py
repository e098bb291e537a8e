"""A model as ONNX Runtime executes it: its optimiser's graph, with the shapes of all tensors.

The runtime itself optimises, on a copy whose weights are zeros from a file that occupies no space,
and infers the shapes; nothing is executed. Shapes are inferred for three batch sizes, since a
size that depends on the batch does so linearly.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import onnx
from onnx import ValueInfoProto

from carpool.errors import ConfigError, Problem
from carpool.onnx_graph.control_flow import branches, refuse_open_ends, unrolled
from carpool.onnx_graph.lightened import lightened
from carpool.onnx_graph.model_file import BATCH, read_onnx
from carpool.onnx_graph.operator_graph import Graph, Operator
from carpool.onnx_graph.parts import (
    DATATYPES,
    as_input,
    dims,
    in_file,
    inputs_of,
    is_inline,
    replaced,
    size_bytes,
)
from carpool.onnx_graph.refusal import fix_of_refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from onnx import GraphProto, ModelProto, NodeProto

    from carpool.onnx_graph.operator_graph import SymbolicShape

__all__ = ["Optimised", "graph_of", "model_name", "optimised", "read_graph"]

_BATCHES = (2, 5, 3)  # the first two determine the line, the third checks it
_ERRORS_ONLY = 4
_WEIGHTS, _NOWHERE = "weights", "nowhere"
_PREFIXES = {"": "", "ai.onnx": "", "com.microsoft.nchwc": "nchwc."}
_Shapes = dict[str, tuple[str, tuple[int, ...]]]


class Optimised(NamedTuple):
    """A model as the runtime executes it.

    Attributes:
        graph: Its operators, in the order of the model's nodes.
        model: Model from the runtime's optimiser; large constants have no values.
    """

    graph: Graph
    model: ModelProto


def read_graph(path: Path, sizes: Mapping[str, int] | None = None) -> Graph:
    """Read the graph of a model file.

    Args:
        path: The file.
        sizes: Sizes of free dimensions other than the batch, by name.

    Raises:
        ConfigError: it is not a model, or its time cannot be predicted from its operators.
    """
    return graph_of(path, read_onnx(path, sizes))


def graph_of(path: Path, model: ModelProto) -> Graph:
    """Return the graph of a model read from ``path`` whose only free dimension is the batch.

    Raises:
        ConfigError: its time cannot be predicted from its operators.
    """
    return optimised(path, model).graph


def optimised(path: Path, model: ModelProto) -> Optimised:
    """Return the graph as `graph_of` does, with the optimised model.

    Raises:
        ConfigError: its time cannot be predicted from its operators.
    """
    folder = Path("/dev/shm")  # noqa: S108  a file of zeros, in its own directory
    with tempfile.TemporaryDirectory(dir=folder if folder.is_dir() else None) as name:
        best = _optimised(path, model, Path(name))
    first = [known[0] for value in model.graph.input if (known := dims(value))]
    fixed = next((dim for dim in first if isinstance(dim, int)), None)
    batches = _BATCHES if fixed is None else (fixed,)
    shapes = [_inferred(path, best, model.graph.input, batch) for batch in batches]
    refuse_open_ends(path, best)
    operators = _operators(path, best.graph, shapes, batches)
    return Optimised(Graph(model_name(path), operators, fixed), best)


def model_name(path: Path) -> str:
    """Return the name of a model: that of its file, or of its folder for ``model.onnx``."""
    return path.absolute().parent.name if path.name == "model.onnx" else path.stem


def _optimised(path: Path, model: ModelProto, folder: Path) -> ModelProto:
    nodes, constants = lightened(model.graph)
    stored = [tensor if is_inline(tensor) else in_file(tensor, _WEIGHTS) for tensor in constants]
    light = replaced(model, node=nodes, initializer=stored)
    with (folder / _WEIGHTS).open("wb") as zeros:
        zeros.truncate(max(map(size_bytes, stored), default=0))
    (folder / _NOWHERE).symlink_to(os.devnull)
    entries = {
        "session.disable_prepacking": "1",
        "session.model_external_initializers_file_folder_path": str(folder),
        "session.optimized_model_external_initializers_file_name": _NOWHERE,
        "session.optimized_model_external_initializers_min_size_in_bytes": "1024",
    }
    _open(path, light, entries, save=folder / "model")
    return onnx.load(folder / "model", format="protobuf", load_external_data=False)


def _inferred(
    path: Path, best: ModelProto, inputs: Iterable[ValueInfoProto], batch: int
) -> _Shapes:
    """Return datatype and sizes of every tensor that is not constant."""
    graph = best.graph
    large = [as_input(tensor) for tensor in graph.initializer if not is_inline(tensor)]
    known = {value.name: value for value in graph.output}
    names = dict.fromkeys(name for node in graph.node for name in node.output if name)
    replacement = replaced(
        best,
        node=[simple for node in graph.node for simple in unrolled(node)],
        input=[*(_of_batch(value, batch) for value in inputs), *large],
        output=[known.get(name) or ValueInfoProto(name=name) for name in names],
        initializer=[tensor for tensor in graph.initializer if is_inline(tensor)],
        value_info=[],
    )
    session = _open(path, replacement, {}, basic=True)
    args = [*session.get_inputs(), *session.get_outputs()]
    return {
        arg.name: (_datatype(arg.type), tuple(arg.shape))
        for arg in args
        if arg.shape is not None and all(isinstance(size, int) for size in arg.shape)
    }


def _of_batch(value: ValueInfoProto, batch: int) -> ValueInfoProto:
    copy = ValueInfoProto()
    copy.CopyFrom(value)
    for dim in copy.type.tensor_type.shape.dim:
        if dim.dim_param == BATCH:
            dim.dim_value = batch
    return copy


def _operators(
    path: Path, graph: GraphProto, shapes: Sequence[_Shapes], batches: Sequence[int]
) -> list[Operator]:
    made = {output: at for at, node in enumerate(graph.node) for output in node.output}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    unknown = [
        f"{node.name or node.op_type} ({node.op_type})"
        for node in graph.node
        if any(name and any(name not in known for known in shapes) for name in node.output)
    ]
    if unknown:
        raise ConfigError(
            [
                Problem(
                    str(path),
                    f"{len(unknown)} operators, {unknown[0]} first",
                    "outputs whose shapes follow from the model's inputs",
                    "their sizes depend on values; carpool profile measures the whole model",
                )
            ]
        )

    def data(name: str) -> tuple[str, SymbolicShape, bool]:
        tensor = constants.get(name)
        if tensor is not None:
            datatype = DATATYPES.get(tensor.data_type, ("other", 1))[0]
            return datatype, tuple((size, 0) for size in tensor.dims), True
        if not name:
            return "", (), False
        datatype = shapes[0][name][0]
        return datatype, _linear([known[name][1] for known in shapes], batches), False

    def operator(node: NodeProto) -> Operator:
        texts = [json.dumps(dict(sorted(w.items())), separators=(",", ":")) for w in branches(node)]
        names = inputs_of(node)
        return Operator(
            node.name,
            _PREFIXES.get(node.domain, f"{node.domain}.") + node.op_type,
            texts[0],
            tuple(data(name) for name in names),
            tuple(data(name) for name in node.output if name),
            tuple(sorted({made[name] for name in names if name in made})),
            *texts[1:],
        )

    return [operator(node) for node in graph.node]


def _linear(shapes: Sequence[tuple[int, ...]], batches: Sequence[int]) -> SymbolicShape:
    if len(batches) == 1:
        return tuple((size, 0) for size in shapes[0])
    step = batches[1] - batches[0]
    lines = []
    for low, high in zip(shapes[0], shapes[1], strict=True):
        each = (high - low) // step
        lines.append((low - each * batches[0], each))
    return tuple(lines)


def _datatype(text: str) -> str:
    names = {"float": "f32", "double": "f64", "float16": "f16", "bfloat16": "bf16", "bool": "bool"}
    inner = text.removeprefix("tensor(").removesuffix(")")
    return names.get(inner) or inner.replace("uint", "u").replace("int", "i")


def _open(
    path: Path,
    model: ModelProto,
    entries: Mapping[str, str],
    *,
    save: Path | None = None,
    basic: bool = False,
) -> Any:  # noqa: ANN401  onnxruntime ships no types
    import onnxruntime as ort  # noqa: PLC0415  scenarios without such a model do without it

    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    if save:
        options.optimized_model_filepath = str(save)
    if basic:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    try:
        return ort.InferenceSession(
            model.SerializeToString(),
            options,
            providers=["CPUExecutionProvider"],
            enable_fallback=False,  # there is no other; trying again prints to stdout
        )
    except Exception as error:
        text = " ".join(str(error).split())
        problem = Problem(str(path), text, "a model that ONNX Runtime reads", fix_of_refusal(text))
        raise ConfigError([problem]) from error
