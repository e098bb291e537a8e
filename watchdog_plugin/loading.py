"""From settings to a function that has answered once: load, choose the kind, warm up."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from carpool import wire
from watchdog_plugin import author as authors
from watchdog_plugin import logs
from watchdog_plugin.batch_function import BatchFunction
from watchdog_plugin.function import LoadError
from watchdog_plugin.item import Item

if TYPE_CHECKING:
    from collections.abc import Sequence

    from watchdog_plugin.author import Author
    from watchdog_plugin.function import Function
    from watchdog_plugin.settings import HandlerSettings

__all__ = ["load"]

_FIRST_ERROR_STATUS = 400


def load(settings: HandlerSettings) -> Function[Any]:
    """The function in the settings' folder, warmed up for batches of one and of the most.

    Raises:
        LoadError: it cannot start; the message says why and what to do.
    """
    author = authors.read(settings.function_dir)
    has_model = settings.model_path_given or settings.model_path.exists()
    if author.handle_batch is None and not has_model:
        msg = (
            f"{author.source} defines no handle_batch and there is no {settings.model_path}: "
            "expected one of them; define handle_batch(items), or put the model there"
        )
        raise LoadError(msg)
    authors.call_load(author)
    function = _function(author, settings)
    sizes = sorted({1, settings.batch_max})
    if author.examples:
        for size in sizes:
            _run_examples(function, author, size)
    else:
        function.warm_up(sizes)
    return function


def _function(author: Author, settings: HandlerSettings) -> Function[Any]:
    if author.handle_batch is not None:
        return BatchFunction(author.handle_batch)
    try:
        # Here, so that a function without a model needs neither NumPy nor ONNX Runtime.
        from watchdog_plugin.onnx_function import OnnxFunction  # noqa: PLC0415
        from watchdog_plugin.onnx_model import OnnxModel  # noqa: PLC0415
        from watchdog_plugin.staged.load import staged_model  # noqa: PLC0415
    except ImportError as error:
        msg = (
            f"model {str(settings.model_path)!r} needs the packages numpy and onnxruntime; "
            f"pip install 'carpool[onnx]' ({logs.describe(error)})"
        )
        raise LoadError(msg) from error
    lengths = settings.lengths or author.lengths
    model = staged_model(settings, author, lengths) or OnnxModel(
        settings.model_path, settings.threads, lengths, settings.batch_max
    )
    logs.say(
        f"model {settings.model_path}: {model.signature.described()} on {model.provider}, "
        f"{settings.threads} thread(s)"
    )
    return OnnxFunction(model, author, settings.model_name)


def _run_examples(function: Function[Any], author: Author, size: int) -> None:
    head = wire.build_head("POST /", ())
    bodies = itertools.islice(itertools.cycle(author.examples), size)
    items = [Item(memoryview(body), head, math.inf) for body in bodies]
    try:
        answers = _straight_through(function, items)
    except Exception as error:
        msg = f"{author.source}: example in a batch of {size}: {logs.describe(error)}"
        raise LoadError(msg) from error
    for answer in answers:
        if answer.status >= _FIRST_ERROR_STATUS:
            said = bytes(answer.body).decode("utf-8", "replace")
            msg = f"{author.source}: example is answered {answer.status} {said}; mend one of them"
            raise LoadError(msg)


def _straight_through(function: Function[Any], items: Sequence[Item]) -> Sequence[Any]:
    work = function.decode(items)
    function.run(work)
    return function.encode(work)
