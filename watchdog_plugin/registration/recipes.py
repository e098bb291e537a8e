"""Recipes that make a variant of a model file, with ONNX Runtime's own tools.

A handler opens any model with all optimisations enabled; a recipe makes a file for which their
result differs. `plain` is the unchanged file.
"""

from __future__ import annotations

import logging
import shutil
from typing import TYPE_CHECKING

import onnxruntime as ort

from carpool.errors import CarpoolError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["RECIPES", "RecipeFailed"]

_ERRORS_ONLY = 3


class RecipeFailed(CarpoolError):
    """Raised when a variant cannot be made."""


def _plain(source: Path, target: Path) -> None:
    """Copy the model as trained."""
    shutil.copyfile(source, target)


def _folded(source: Path, target: Path) -> None:
    """Fold constants and remove redundant nodes, so that the model loads faster."""
    _optimised(source, target, ort.GraphOptimizationLevel.ORT_ENABLE_BASIC)


def _fused(source: Path, target: Path) -> None:
    """Fold constants, remove redundant nodes, and fuse operators."""
    _optimised(source, target, ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED)


def _int8(source: Path, target: Path) -> None:
    """Quantise weights to eight bits; activations are quantised at run time."""
    try:
        from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415  slow
    except ImportError as error:
        msg = f"quantising needs the package onnx: pip install 'carpool[onnx]' ({error})"
        raise RecipeFailed(msg) from error
    logging.disable()  # it advises a preparation that does not help trained models
    try:
        quantize_dynamic(str(source), str(target), weight_type=QuantType.QInt8)
    finally:
        logging.disable(logging.NOTSET)


def _fp16(source: Path, target: Path) -> None:
    """Convert weights and arithmetic to sixteen bits, but keep the types of inputs and outputs."""
    try:
        import onnx  # noqa: PLC0415  slow
        from onnxruntime.transformers.float16 import convert_float_to_float16  # noqa: PLC0415
    except ImportError as error:
        msg = f"converting to fp16 needs the package onnx: pip install 'carpool[onnx]' ({error})"
        raise RecipeFailed(msg) from error
    onnx.save(convert_float_to_float16(onnx.load(str(source)), keep_io_types=True), str(target))


def _single(source: Path, target: Path) -> None:
    """Optimise for one request at a time, with the batch size fixed to one."""
    session = ort.InferenceSession(str(source), providers=["CPUExecutionProvider"])
    free = {arg.shape[0] for arg in session.get_inputs() if arg.shape}
    names = {name for name in free if isinstance(name, str)}
    if not names or len(names) != len(free):
        msg = "its batch dimension has no name, so its size cannot be set"
        raise RecipeFailed(msg)
    _optimised(source, target, ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED, names)


def _optimised(source: Path, target: Path, level: object, ones: set[str] | None = None) -> None:
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.optimized_model_filepath = str(target)
    options.log_severity_level = _ERRORS_ONLY
    for name in ones or ():
        options.add_free_dimension_override_by_name(name, 1)
    ort.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])


RECIPES: dict[str, Callable[[Path, Path], None]] = {
    "plain": _plain,
    "folded": _folded,
    "fused": _fused,
    "int8": _int8,
    "fp16": _fp16,
    "single": _single,
}
