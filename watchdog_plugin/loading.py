"""Loads the function selected by the settings, and warms it up."""

from __future__ import annotations

import itertools
import math
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from carpool import wire
from watchdog_plugin import handler_contract as authors
from watchdog_plugin import logs, model_folder
from watchdog_plugin.batch_function import BatchFunction
from watchdog_plugin.function import Function, LoadError
from watchdog_plugin.item import Item, ItemError
from watchdog_plugin.protocols.repository import Repository
from watchdog_plugin.streaming import Streaming

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from watchdog_plugin.handler_contract import HandlerModule
    from watchdog_plugin.model_folder import ModelFile
    from watchdog_plugin.settings import HandlerSettings
    from watchdog_plugin.stage_execution.executor import Executor

__all__ = ["Loaded", "load"]

_FIRST_ERROR_STATUS = 400


class Loaded(NamedTuple):
    """The function that handles requests, and the handler of streamed ones if there is any."""

    function: Function[Any]
    streaming: Streaming | None


def load(settings: HandlerSettings) -> Loaded:
    """Load the function in the configured folder, and warm it up at the smallest and largest batch.

    Raises:
        LoadError: The function cannot start; the message says why and what to do.
    """
    author = authors.read(settings.function_dir)
    model = model_folder.find(settings) if author.handle_batch is None else None
    several = model_folder.several(settings) if author.handle_batch is None else {}
    everything = author.handle_batch is None and model is None and not several
    if everything and author.stream is None:
        msg = (
            f"{author.source} defines no handle_batch and there is no {settings.model_path}: "
            "expected one of them; define handle_batch(items) or stream(item), or put the model "
            "there"
        )
        raise LoadError(msg)
    authors.call_load(author)
    streaming = Streaming.of(author, settings, everything=everything)
    if everything:
        return Loaded(BatchFunction(_none_batched), streaming)
    repository = Repository(settings.batch_max)
    if several:
        function = _colocated(several, author, repository)
    else:
        function = _warmed(_function(author, settings, model, repository), author, settings)
    repository.opened()
    return Loaded(function, streaming)


def _none_batched(items: Sequence[Item]) -> list[ItemError]:
    """Return errors, as `stream` handles all requests except HEAD, which has no body."""
    return [ItemError("this function streams its answers: HEAD has none", 405) for _ in items]


def _colocated(
    several: Mapping[str, HandlerSettings], common: HandlerModule, repository: Repository
) -> Function[Any]:
    """Return a function of several models on one device, each configured as it would be alone."""
    hooks = ("preprocess", "postprocess", "decode_step")
    unused = [name for name in hooks if getattr(common, name) is not None]
    if unused:
        msg = (
            f"{common.source} defines {unused[0]}, but the function has several models: expected "
            "it in a model's folder; move it to the handler.py of the model that it is for"
        )
        raise LoadError(msg)
    with _packages("several models"):
        from watchdog_plugin.colocated import Colocated  # noqa: PLC0415  as in `_function`
        from watchdog_plugin.stage_execution.executor import Executor  # noqa: PLC0415
    first = next(iter(several.values()))
    executor = Executor(first.rules) if first.lazy else None
    functions = {}
    for name, settings in several.items():
        author = authors.read(settings.function_dir, f"function_of_{name}")
        if author.stream is not None:
            msg = f"{author.source} defines stream: expected it in the function's own handler.py"
            raise LoadError(msg)
        if author.handle_batch is not None:
            msg = (
                f"{author.source} defines handle_batch, which would replace the model: expected "
                "preprocess or postprocess; in the function's own handler.py, handle_batch "
                "answers instead of all models"
            )
            raise LoadError(msg)
        authors.call_load(author)
        file = model_folder.ModelFile(settings.model_path)
        made = _function(author, settings, file, repository, executor)
        functions[name] = _warmed(made, author, settings)
    function = Colocated(functions)
    if executor and function.concurrency == 1:
        logs.say("not every model runs stage by stage, so the function takes one batch at a time")
    return function


def _warmed(
    function: Function[Any], author: HandlerModule, settings: HandlerSettings
) -> Function[Any]:
    sizes = sorted({1, settings.batch_max})
    if author.examples:
        for size in sizes:
            _run_examples(function, author, size)
    else:
        function.warm_up(sizes)
    return function


def _function(
    author: HandlerModule,
    settings: HandlerSettings,
    file: ModelFile | None,
    repository: Repository,
    executor: Executor | None = None,
) -> Function[Any]:
    if author.handle_batch is not None or file is None:
        assert author.handle_batch is not None  # noqa: S101  one of both is there
        return BatchFunction(author.handle_batch, settings.answer_max_bytes)
    with _packages(f"model {str(settings.model_path)!r}"):
        # Here, so that a function without a model needs neither NumPy nor ONNX Runtime.
        from watchdog_plugin.onnx.function import OnnxFunction  # noqa: PLC0415
        from watchdog_plugin.onnx.model import OnnxModel  # noqa: PLC0415
        from watchdog_plugin.stage_execution.staged_loading import staged_model  # noqa: PLC0415
    lengths = settings.lengths or author.lengths
    staged = replace(settings, model_path=file.path)
    axes = settings.batch_axis or author.batch_axis
    model = (None if axes else staged_model(staged, author, lengths, executor)) or OnnxModel(
        file.path, settings.threads, lengths, settings.batch_max, settings.answer_max_bytes, axes
    )
    logs.say(
        f"model {file.path}: {model.signature.described()} on {model.provider}, "
        f"{settings.threads} thread{'' if settings.threads == 1 else 's'}"
    )
    return OnnxFunction(
        model,
        author,
        settings.model_name,
        file.variant,
        settings.answer_max_bytes,
        repository,
    )


@contextmanager
def _packages(what: str) -> Iterator[None]:
    """Convert an import error to a `LoadError` that says what to install."""
    try:
        yield
    except ImportError as error:
        msg = (
            f"{what} needs the packages numpy and onnxruntime; "
            f"pip install 'carpool[handler]' ({logs.describe(error)})"
        )
        raise LoadError(msg) from error


def _run_examples(function: Function[Any], author: HandlerModule, size: int) -> None:
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
            text = bytes(answer.body).decode("utf-8", "replace")
            msg = (
                f"{author.source}: example is answered with {answer.status} {text}; fix the "
                "example or the handler"
            )
            raise LoadError(msg)


def _straight_through(function: Function[Any], items: Sequence[Item]) -> Sequence[Any]:
    work = function.decode(items)
    function.run(work)
    return function.encode(work)
