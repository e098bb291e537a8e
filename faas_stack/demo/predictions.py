"""Predictions of the demonstration, each checked against a reference: magika or ONNX Runtime."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from carpool.http.client import Pool
from faas_stack.demo.stack import ROOT, DemoFailed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from carpool.http.client import Response

__all__ = ["Prediction", "filetypes", "image", "tensor_body", "vectors"]

_FILES = (
    "README.md",
    "pyproject.toml",
    "Makefile",
    "LICENSE",
    "sidecar/core/batcher.py",
    "examples/stack.yaml",
    "scaler/dashboard/page.html",
    "templates/python3-batch/Dockerfile",
    "templates/python3-onnx-batch/function/example.onnx",
    "faas_stack/_templates/python3-batch/Dockerfile",  # paths in an installed wheel
    "faas_stack/_templates/python3-onnx-batch/function/example.onnx",
)
_TOLERANCE = 1e-5
_TIMEOUT_S = 20.0
_LATE = (503, 504)  # a busy machine may miss an SLO of 200 ms
_FURTHER_ATTEMPTS = 9
_VECTORS = 64


@dataclass(frozen=True, slots=True)
class Prediction:
    """One prediction: the input, the output, whether it is right, and the size of its batch."""

    input: str
    output: str
    right: bool
    batch: int


async def filetypes(address: str) -> list[Prediction]:
    """Classify several files at once and compare the results with the magika package."""
    from magika import Magika  # noqa: PLC0415 - slow to import, and only needed here

    files = {name: (ROOT / name).read_bytes() for name in _FILES if (ROOT / name).is_file()}
    raw = [("application/octet-stream", content) for content in files.values()]
    answers = await _ask(address, "filetype", raw)
    oracle = Magika()
    predictions = []
    for (name, content), answer in zip(files.items(), answers, strict=True):
        output = json.loads(answer.body)
        expected = oracle.identify_bytes(content)
        right = output["label"] == str(expected.output.label)
        right = right and abs(output["score"] - expected.score) <= _TOLERANCE
        answered = f"{output['label']} ({output['score']:.2f})"
        predictions.append(Prediction(name, answered, right, _batch(answer)))
    return predictions


async def image(address: str, examples: Path) -> Prediction:
    """Classify a generated image with ResNet-50 and compare with the model run directly."""
    import numpy as np  # noqa: PLC0415 - the stack itself does without

    waves = np.sin(np.linspace(0, 12, 224, dtype=np.float32))
    picture = np.stack([np.outer(waves, np.roll(waves, 75 * c)) for c in range(3)])[None]
    (answer,) = await _ask(address, "resnet50", [_tensor("image", picture)])
    scores = np.asarray(_output(answer), np.float32).ravel()
    expected = _run(examples / "resnet50", picture).ravel()
    best = scores.argsort()[::-1][:3]
    answered = ", ".join(f"class {c} ({scores[c]:.3f})" for c in best)
    right = bool(np.allclose(scores, expected, rtol=_TOLERANCE, atol=1e-8))
    return Prediction("a generated image, 224 x 224", answered, right, _batch(answer))


async def vectors(address: str, examples: Path) -> Prediction:
    """Send many different vectors at once and compare each with the model run on it alone."""
    import numpy as np  # noqa: PLC0415

    rows = np.random.default_rng(4).standard_normal((_VECTORS, 1, 512)).astype(np.float32)
    answers = await _ask(address, "wide", [_tensor("x", row) for row in rows])
    right = sum(
        bool(
            np.allclose(
                _output(a), _run(examples / "wide", row).ravel(), rtol=_TOLERANCE, atol=1e-6
            )
        )
        for a, row in zip(answers, rows, strict=True)
    )
    batch = max(map(_batch, answers))
    answered = f"{right} equal the model's answers one by one"
    return Prediction(f"{_VECTORS} vectors at once", answered, right == _VECTORS, batch)


def tensor_body(name: str, shape: Sequence[int], data: Sequence[float]) -> bytes:
    """Return the body of an Open Inference Protocol v2 request with one FP32 tensor."""
    tensor = {"name": name, "datatype": "FP32", "shape": list(shape), "data": list(data)}
    return json.dumps({"inputs": [tensor]}).encode()


def _tensor(name: str, array: Any) -> tuple[str, bytes]:  # noqa: ANN401 - numpy stays optional
    return "application/json", tensor_body(name, array.shape, array.ravel().tolist())


async def _ask(address: str, function: str, bodies: list[tuple[str, bytes]]) -> list[Response]:
    pool = Pool(address, max_connections=len(bodies))
    try:
        return await asyncio.gather(*(_ask_one(pool, function, *each) for each in bodies))
    finally:
        pool.close()


async def _ask_one(pool: Pool, function: str, content_type: str, body: bytes) -> Response:
    headers = [("content-type", content_type), ("x-carpool-explain", "1")]
    target = f"/function/{function}"
    answer = await pool.request("POST", target, headers, body, timeout_s=_TIMEOUT_S)
    for _ in range(_FURTHER_ATTEMPTS):
        if answer.status not in _LATE:
            break
        answer = await pool.request("POST", target, headers, body, timeout_s=_TIMEOUT_S)
    if answer.status != 200:  # noqa: PLR2004
        text = answer.body[:300].decode(errors="replace")
        msg = f"{function} answered {answer.status}: {text}"
        raise DemoFailed(msg)
    return answer


def _output(answer: Response) -> list[float]:
    data: list[float] = json.loads(answer.body)["outputs"][0]["data"]
    return data


_sessions: dict[Path, Any] = {}


def _run(function: Path, array: Any) -> Any:  # noqa: ANN401 - numpy stays optional
    """Run the model directly, on one thread like the function."""
    import onnxruntime  # noqa: PLC0415

    if function not in _sessions:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        _sessions[function] = onnxruntime.InferenceSession(
            function / "model.onnx", options, providers=["CPUExecutionProvider"]
        )
    session = _sessions[function]
    return session.run(None, {session.get_inputs()[0].name: array})[0]


def _batch(answer: Response) -> int:
    return int(answer.header(b"x-carpool-batch") or 1)
