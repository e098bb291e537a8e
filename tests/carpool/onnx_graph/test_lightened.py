"""Models stripped of weights, which the runtime optimises as it does the originals."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from carpool.onnx_graph.lightened import lightened
from carpool.onnx_graph.optimised import read_graph
from carpool.onnx_graph.parts import attributes, replaced

if TYPE_CHECKING:
    from pathlib import Path

_DOMAINS = {"": "", "ai.onnx": "", "com.microsoft.nchwc": "nchwc."}


class _Net:
    """Builder of networks over images of 32 channels and 8 by 8 pixels."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._rng = np.random.default_rng(1)

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add an operator and return the name of its output."""
        name = f"{operator} {len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [name], name, **attributes))
        return name

    def weights(self, *shape: int) -> str:
        """Add a random constant and return its name."""
        array = self._rng.standard_normal(shape).astype(np.float32)
        self._weights.append(numpy_helper.from_array(array, f"w {len(self._weights)}"))
        return self._weights[-1].name

    def conv(self, image: str, *others: str, out: int = 32, taps: int = 3) -> str:
        """Add a convolution that keeps height and width, with new or given weights."""
        given = others or (self.weights(out, 32, taps, taps),)
        return self.add("Conv", image, *given, kernel_shape=[taps] * 2, pads=[taps // 2] * 4)

    def normalised(self, image: str, channels: int = 32) -> str:
        """Add a batch normalisation with random parameters."""
        return self.add("BatchNormalization", image, *(self.weights(channels) for _ in range(4)))

    def model(self, *outputs: str) -> onnx.ModelProto:
        """Return the network as a model."""
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 32, 8, 8])]
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self._nodes, "net", inputs, ends, self._weights)
        opset = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opset, ir_version=8)


def _residual(net: _Net) -> list[str]:
    last = "x"
    for _ in range(3):
        inner = net.add("Relu", net.normalised(net.conv(last)))
        last = net.add("Relu", net.add("Add", last, net.normalised(net.conv(inner))))
    return [last]


def _branches(net: _Net) -> list[str]:
    ends = [net.add("Relu", net.normalised(net.conv("x", taps=1))) for _ in range(3)]
    return [net.add("Concat", *ends, axis=1)]


def _before(net: _Net) -> list[str]:
    last = "x"
    for _ in range(2):
        last = net.conv(net.add("Relu", net.normalised(last)))
    return [last]


def _read_twice(net: _Net) -> list[str]:
    image = net.conv("x")
    return [net.add("Add", image, net.normalised(image))]


def _told(net: _Net) -> list[str]:
    image = net.conv("x")
    return [image, net.normalised(image)]


def _tied(net: _Net) -> list[str]:
    weights = net.weights(32, 32, 3, 3)
    return [net.normalised(net.conv(net.normalised(net.conv("x", weights)), weights))]


def _biased(net: _Net) -> list[str]:
    image = net.conv("x", net.weights(32, 32, 3, 3), net.weights(32))
    wide = net.conv(net.normalised(image), out=512, taps=1)
    return [net.normalised(wide, 512)]


_NETS = [_residual, _branches, _before, _read_twice, _told, _tied, _biased]


def _kept(graph: onnx.GraphProto) -> Counter[tuple[str, str]]:
    return Counter(
        (
            _DOMAINS.get(node.domain, f"{node.domain}.") + node.op_type,
            json.dumps(dict(sorted(attributes(node).items())), separators=(",", ":")),
        )
        for node in graph.node
    )


@pytest.mark.parametrize("shape", _NETS, ids=lambda shape: shape.__name__.strip("_"))
def test_runtime_optimises_lightened_model_like_the_original(shape: Any, tmp_path: Path) -> None:
    """The operators equal those of the model with its weights after the runtime's optimisation."""
    net = _Net()
    path, whole = tmp_path / "net.onnx", tmp_path / "whole.onnx"
    onnx.save(net.model(*shape(net)), path)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(whole)
    ort.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    expected = _kept(onnx.load(whole).graph)
    graph = read_graph(path)
    assert expected == Counter(
        (operator.op_type, operator.attributes) for operator in graph.operators
    )


def test_equal_shapes_share_a_constant_unless_they_share_an_input() -> None:
    """Equal shapes share a constant, except for operators of one input, which would be merged."""
    counts = []
    for shape in (_residual, _branches):
        net = _Net()
        nodes, _ = lightened(net.model(*shape(net)).graph)
        counts.append(len({node.input[1] for node in nodes if node.op_type == "Conv"}))
    assert [1, 3] == counts


def test_lightened_model_keeps_names_and_has_no_unused_constants() -> None:
    """No unused constant is left, nodes keep their names, and the given model is unchanged."""
    net = _Net()
    made = net.model(*_biased(net))
    before = made.SerializeToString(deterministic=True)
    nodes, constants = lightened(made.graph)
    light = replaced(made, node=nodes, initializer=constants).graph
    used = {name for node in light.node for name in node.input}
    assert {tensor.name for tensor in light.initializer} <= used
    assert ["Conv", "Add", "Conv", "Add"] == [node.op_type for node in light.node]
    assert [node.name for node in made.graph.node] == [node.name for node in light.node]
    assert before == made.SerializeToString(deterministic=True)
