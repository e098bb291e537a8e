"""A function made of an ONNX model, and the author's `preprocess` and `postprocess` if any.

Decides how a request is parsed: with the Open Inference Protocol under ``/v2``, else with the
author's `preprocess`, else as JSON by its member ``inputs`` or ``instances``. Requests of the same
form are parsed together. If that fails, each half is parsed, down to the request at fault.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from carpool.caching import SmallCache
from carpool.errors import BadRequest, CarpoolError, NotFound
from carpool.wire import CALLED_HEADER, JSON_LENGTH_HEADER, shared_head
from watchdog_plugin import answers, json_codec, logs
from watchdog_plugin.answers import Answer
from watchdog_plugin.content_coding import TooMuchTogetherError
from watchdog_plugin.item import ItemError, Reply, read_head
from watchdog_plugin.onnx.padding import PaddingWaste
from watchdog_plugin.protocols import oip, oip_binary, v1
from watchdog_plugin.protocols.oip import Inference, OpenInference
from watchdog_plugin.protocols.oip_binary import Tails
from watchdog_plugin.protocols.statistics import Times
from watchdog_plugin.protocols.tensors import Call
from watchdog_plugin.protocols.v1 import Instances

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from watchdog_plugin.handler_contract import HandlerModule
    from watchdog_plugin.item import Item
    from watchdog_plugin.onnx.padding import Padding
    from watchdog_plugin.protocols.repository import Repository
    from watchdog_plugin.protocols.tensors import Arrays, Signature

    Reader = Callable[[Sequence[Any]], Call]
    # A function that reads requests of one form together, that form, and the request.
    Opened = tuple[Reader, Hashable, Any]

__all__ = ["PADDING_HEADER", "Model", "OnnxFunction"]

PADDING_HEADER = "x-carpool-padding"
_FAILED_FROM = 400

_T = TypeVar("_T")


class Model(Protocol):
    """A model that runs calls.

    Attributes:
        signature: Its inputs and outputs.
        joins: Whether requests of equal shapes may be joined to one call.
        padding: How inputs of different lengths are padded; None if they are not.
        concurrency: Number of batches that it accepts concurrently.
        on_run: Called after each execution with its number of rows and its duration in nanoseconds.
    """

    signature: Signature
    padding: Padding | None
    concurrency: int
    on_run: Callable[[int, int], object]

    @property
    def joins(self) -> bool:
        """Whether requests of equal shapes may be joined to one call."""

    def warm_up(self, sizes: Sequence[int]) -> None:
        """Warm up the model, as `Function.warm_up` does."""

    def run(
        self, calls: Sequence[Call], waste: PaddingWaste | None, remaining_s: Sequence[float]
    ) -> list[Arrays | CarpoolError]:
        """Return the outputs, or the error, of each request of the calls."""


class _Work:
    """A batch being processed.

    Attributes:
        answers: Responses by the item's index in the batch.
        calls: Calls of the model.
        places: Index in the batch of each request of the calls.
        outcomes: Outputs or error of each of these requests.
        remaining_s: Seconds before the deadline of each item.
        failed: Number of inference requests that failed.
        times: Times at which it was begun, decoded, started and run.
    """

    __slots__ = (
        "answers",
        "calls",
        "failed",
        "outcomes",
        "places",
        "remaining_s",
        "times",
        "waste",
    )

    def __init__(self, remaining_s: Sequence[float]) -> None:
        self.failed = 0
        self.times = [time.perf_counter_ns()]
        self.remaining_s = remaining_s
        self.answers: dict[int, Answer] = {}
        self.calls: list[Call] = []
        self.places: list[int] = []
        self.outcomes: list[Arrays | CarpoolError] = []
        self.waste = PaddingWaste()


class OnnxFunction:
    """Parses requests, runs the model over the valid ones, and responds to all.

    Args:
        model: The model to run.
        author: Definitions of the author, of which `preprocess` and `postprocess` are used.
        name: The only model name that requests may use; if empty, any.
        variant: Name of the model's variant; empty if there are none.
        answer_max_bytes: Maximum size of one item's response; a request for more gets a 400.
        repository: The function's models, to which this one is added.
    """

    on_main_thread = False

    def __init__(
        self,
        model: Model,
        author: HandlerModule,
        name: str,
        variant: str = "",
        answer_max_bytes: int = answers.LARGEST_BYTES,
        repository: Repository | None = None,
    ) -> None:
        self._model = model
        self._answer_max_bytes = answer_max_bytes
        self.concurrency = model.concurrency
        self._preprocess = _guarded("preprocess", author.preprocess)
        self._postprocess = _guarded("postprocess", author.postprocess)
        self._protocol = OpenInference(model.signature, name, variant, repository, answer_max_bytes)
        self._statistics = self._protocol.statistics
        model.on_run = self._statistics.executed
        self._instances = Instances(model.signature, self._postprocess)
        # Most items of a batch share one head, and batches repeat the same few.
        self._opener = SmallCache(self._find_opener)
        self._is_plain = SmallCache(self._find_plain)

    def warm_up(self, sizes: Sequence[int]) -> None:
        """Run the model on zeros.

        Raises:
            LoadError: The run fails.
        """
        self._model.warm_up(sizes)

    def decode(self, items: Sequence[Item]) -> _Work:
        """Parse all items; an invalid one gets an error response."""
        work = _Work([item.remaining_s for item in items])
        alike: dict[tuple[Reader, Hashable], tuple[list[int], list[Any]]] = {}
        for place, opened in enumerate(self._open_alike(items) or self._open_each(work, items)):
            if isinstance(opened, Answer):
                work.answers[place] = opened
                continue
            read, form, request = opened
            places, requests = alike.setdefault((read, form), ([], []))
            places.append(place)
            requests.append(request)
        for (read, _), (places, requests) in alike.items():
            self._read(work, read, places, requests)
        work.times.append(time.perf_counter_ns())
        return work

    def _open_alike(self, items: Sequence[Item]) -> Sequence[Opened]:
        """Open all items if they share one head and are plain JSON; empty if one is invalid.

        It does what `_open_each` does for nearly all batches, in a fraction of the time.
        """
        heads = {shared_head(head) for head in {item.head for item in items}}
        try:
            if len(heads) > 1 or not all(map(self._is_plain, heads)):
                return ()
            return [self._opened(json_codec.loads(item.body)) for item in items]
        except Exception:  # noqa: BLE001  reading one by one shows which is at fault
            return ()

    def _open_each(self, work: _Work, items: Sequence[Item]) -> Iterator[Opened | Answer]:
        """Open the items one by one; yield an error response for an invalid one."""
        head, opener = b"", None
        for item in items:
            try:
                if opener is None or item.head is not head:  # most have one
                    opener = self._opener(shared_head(item.head))
                    head = item.head
                yield opener(item)
            except TooMuchTogetherError:
                raise  # it is the batch's: the sidecar divides it
            except Exception as error:  # noqa: BLE001  any error concerns only this item
                work.failed += not isinstance(error, NotFound)
                yield _unread(error)

    def run(self, work: _Work) -> None:
        """Run the model over the valid items."""
        work.times.append(time.perf_counter_ns())
        remaining_s = [work.remaining_s[place] for place in work.places]
        work.outcomes = self._model.run(work.calls, work.waste, remaining_s)
        work.times.append(time.perf_counter_ns())

    def encode(self, work: _Work) -> list[Answer]:
        """Return one response per item, in order."""
        answerers = [answer for call in work.calls for answer in call.answers]
        made = list(map(_answered, answerers, work.outcomes))
        if max([len(answer.body) for answer in made], default=0) > self._answer_max_bytes:
            made = [answers.within(self._answer_max_bytes, answer, 400) for answer in made]
        work.answers.update(zip(work.places, made, strict=True))
        self._count(work)
        return [work.answers[place] for place in range(len(work.answers))]

    def headers(self, work: _Work) -> list[tuple[str, str]]:
        """Return the amount of padding as a header, if variable lengths are declared."""
        return [] if self._model.padding is None else [(PADDING_HEADER, str(work.waste))]

    def _count(self, work: _Work) -> None:
        failed = sum([work.answers[place].status >= _FAILED_FROM for place in work.places])
        times = Times._make([*work.times, time.perf_counter_ns()])
        self._statistics.answered(times, len(work.places) - failed, work.failed + failed)

    def _read(
        self, work: _Work, read: Reader, places: Sequence[int], requests: Sequence[Any]
    ) -> None:
        alone = len(requests) == 1
        if alone or self._model.joins:
            try:
                call = read(requests)
                self._check_size(call)
            except Exception as error:  # noqa: BLE001  as above
                if alone:
                    work.answers[places[0]] = _unread(error)
                    work.failed += 1
                    return
            else:
                work.calls.append(call)
                work.places += places
                return
        middle = len(requests) // 2
        for half in (slice(middle), slice(middle, None)):
            self._read(work, read, places[half], requests[half])

    def _check_size(self, call: Call) -> None:
        """Refuse a call whose outputs alone would be too large, before they are computed."""
        least = call.rows * self._model.signature.row_bytes
        if least > self._answer_max_bytes:
            what = f"the outputs of {call.rows} rows have"
            raise BadRequest(answers.too_large(least, self._answer_max_bytes, what))

    def _find_opener(self, head: bytes) -> Callable[[Item], Opened | Answer]:
        """Return the function that opens items with this head."""
        line = read_head(head)
        json_length, called = line.headers.get(JSON_LENGTH_HEADER), line.headers.get(CALLED_HEADER)
        if oip.owns(line.path):
            route = self._protocol.route(line.method, line.path, called or "")
            if not isinstance(route, str):
                return route
            return functools.partial(self._open_inference, route, json_length)
        if self._preprocess is not None:
            return functools.partial(self._open_raw, self._preprocess)
        model_name = v1.asked_about(line.method, line.path)
        if model_name is not None:
            if model_name:
                self._protocol.check_name(model_name, called or "")
            about = v1.about(model_name)
            return lambda _: about
        return functools.partial(self._open_json, json_length)

    def _find_plain(self, head: bytes) -> bool:
        """Return whether items with this head go to `_open_json` and have plain JSON bodies."""
        opener, headers = self._opener(head), read_head(head).headers
        plain = JSON_LENGTH_HEADER not in headers and "content-encoding" not in headers
        return plain and isinstance(opener, functools.partial) and opener.func == self._open_json

    def _open_inference(self, name: str, json_length: str | None, item: Item) -> Opened:
        return self._inference(Inference(name, *oip_binary.open_body(item, json_length)))

    def _open_json(self, json_length: str | None, item: Item) -> Opened:
        return self._opened(*oip_binary.open_body(item, json_length))

    def _opened(self, body: Any, tail: memoryview | None = None) -> Opened:  # noqa: ANN401  JSON
        if isinstance(body, dict) and "instances" in body:
            if tail is not None:
                Tails([tail]).end()
            return self._instances.read, self._instances.form(body), body
        if isinstance(body, dict) and "inputs" in body:
            return self._inference(Inference("", body, tail))
        msg = (
            'expected {"instances": [...]} or {"inputs": [...]} for the model\'s inputs '
            f"{self._model.signature.described()}"
        )
        raise BadRequest(msg)

    def _inference(self, request: Inference) -> Opened:
        return self._protocol.read, request.form(), request

    def _open_raw(self, preprocess: Callable[[Item], object], item: Item) -> Opened | Answer:
        value = preprocess(item)
        if isinstance(value, Reply):  # the author knows the answer without the model
            return answers.from_result(value)
        inputs = self._model.signature.one_row(value)
        return self._read_raw, tuple([array.shape for array in inputs.values()]), inputs

    def _read_raw(self, requests: Sequence[Arrays]) -> Call:
        inputs = requests[0]
        if len(requests) > 1:
            inputs = {name: np.concatenate([r[name] for r in requests]) for name in inputs}
        rows = self._model.signature.rows(inputs, len(requests))
        return Call(inputs, rows, [self._raw_answer] * len(requests))

    def _raw_answer(self, outputs: Arrays) -> Answer:
        row = {name: out[0] if out.shape[:1] == (1,) else out for name, out in outputs.items()}
        if self._postprocess is not None:
            return answers.from_result(self._postprocess(row))
        return answers.json_answer(next(iter(row.values())) if len(row) == 1 else row)


def _answered(answer: Callable[[Arrays], Answer], outcome: Arrays | CarpoolError) -> Answer:
    if isinstance(outcome, CarpoolError):
        return answers.failure(outcome.status, outcome)
    try:
        return answer(outcome)
    except (ItemError, BadRequest) as error:
        return answers.failure(error.status, error)
    except Exception as error:  # noqa: BLE001  an author's values raise what they like
        reason = logs.describe(error)
        return answers.failure(500, f"the prediction cannot be written as JSON: {reason}")


def _unread(error: Exception) -> Answer:
    """Return the response to a request that cannot be parsed."""
    if isinstance(error, ItemError | CarpoolError):
        return answers.failure(error.status, error)
    logs.say_failure("reading a request", error)
    return answers.failure(500, f"reading the request raised {type(error).__name__}, see the log")


def _guarded(name: str, hook: Callable[[Any], _T] | None) -> Callable[[Any], _T] | None:
    """Return the author's hook, wrapped so that an error becomes a 500 for its item only."""
    if hook is None:
        return None

    def call(value: Any) -> _T:  # noqa: ANN401  what a hook takes is the hook's own
        try:
            return hook(value)
        except (ItemError, TooMuchTogetherError):
            raise
        except Exception as error:
            logs.say_failure(name, error)
            msg = f"{name} raised {logs.describe(error)}"
            raise ItemError(msg, 500) from error

    return call
