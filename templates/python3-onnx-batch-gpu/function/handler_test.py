"""Tests of this function; in its folder: ``python -m unittest handler_test``."""

import ast
import os
import unittest
from pathlib import Path

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read when ONNX Runtime is imported

import numpy as np
import onnxruntime

MODEL = Path(__file__).with_name("model.onnx")
TYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int8)": np.int8,
    "tensor(int16)": np.int16,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
    "tensor(uint8)": np.uint8,
    "tensor(uint16)": np.uint16,
    "tensor(uint32)": np.uint32,
    "tensor(uint64)": np.uint64,
    "tensor(bool)": np.bool_,
    "tensor(float16)": np.float16,
    "tensor(string)": np.str_,
}


def declared_axes() -> dict[str, int]:
    """Return the ``batch_axis`` of handler.py, which has to be a literal, as it is not run."""
    code = MODEL.with_name("handler.py")
    for node in ast.parse(code.read_text()).body if code.exists() else []:
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        if "batch_axis" in map(ast.unparse, targets):
            axes: dict[str, int] = ast.literal_eval(node.value)
            return axes
    return {}


AXES = declared_axes()


class ModelTest(unittest.TestCase):
    """What a model needs for its requests to be batched."""

    def setUp(self) -> None:
        """Load the model as the runtime does."""
        if not MODEL.exists():
            self.fail(
                f"{MODEL} is missing: put your model there (to try: cp example.onnx model.onnx)"
            )
        self.model = onnxruntime.InferenceSession(MODEL, providers=["CPUExecutionProvider"])

    def inputs(self, count: int) -> dict[str, np.ndarray]:
        """Return random inputs for ``count`` items; dynamic axes besides the batch get size 1."""
        rng = np.random.default_rng(1)
        inputs = {}
        for wanted in self.model.get_inputs():
            shape = [size if isinstance(size, int) else 1 for size in wanted.shape]
            shape[AXES.get(wanted.name, 0)] = count
            inputs[wanted.name] = rng.integers(0, 2, shape).astype(TYPES[wanted.type])
        return inputs

    def fixed(self) -> list[str]:
        """Return the inputs whose batch axis is not dynamic, or that have none."""
        return [
            f"{wanted.name} {wanted.shape}"
            for wanted in self.model.get_inputs()
            if not wanted.shape or isinstance(wanted.shape[AXES.get(wanted.name, 0)], int)
        ]

    def test_the_batch_axis_of_every_input_is_dynamic(self) -> None:
        """Batches may have any size."""
        self.assertEqual(
            [],
            self.fixed(),
            "requests cannot be batched because of these inputs: export the model with a dynamic "
            "first axis, or declare batch_axis in handler.py if the batch is another axis; "
            "a batch would share a scalar",
        )

    def test_a_batch_gets_the_answers_its_items_get_alone(self) -> None:
        """An answer does not depend on what else is in the batch."""
        if self.fixed():
            self.skipTest("requests run one by one")
        inputs = self.inputs(3)
        outputs = [each.name for each in self.model.get_outputs() if each.type in TYPES]
        self.assertTrue(outputs, "no output can be served: sequences and maps are left out")
        together = self.model.run(outputs, inputs)
        axes = [AXES.get(name, 0) for name in outputs]
        for name, batch, axis in zip(outputs, together, axes, strict=True):
            rows = batch.shape[axis] if axis < batch.ndim else "no"
            self.assertEqual(3, rows, f"requests cannot be batched: {name} has {rows} rows for 3")
        for i in range(3):
            one = {name: np.take(a, [i], AXES.get(name, 0)) for name, a in inputs.items()}
            alone = self.model.run(outputs, one)
            for batch, single, axis in zip(together, alone, axes, strict=True):
                expected, answer = np.take(single, 0, axis), np.take(batch, i, axis)
                if batch.dtype == object:  # texts, such as the names of classes
                    np.testing.assert_array_equal(answer, expected)
                else:
                    np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-6)


if __name__ == "__main__":
    unittest.main()
