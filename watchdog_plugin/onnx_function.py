"""A function made of an ONNX model, and of the author's `preprocess` and `postprocess` if any.

Decides which way a request is read: the Open Inference Protocol under ``/v2``, else the author's
`preprocess`, else JSON by its member ``inputs`` or ``instances``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from carpool.errors import BadRequest, CarpoolError
from watchdog_plugin import answers, binary, instances, logs, oip
from watchdog_plugin.item import ItemError, Reply
from watchdog_plugin.padding import Waste
from watchdog_plugin.tensors import Call

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from watchdog_plugin.answers import Answer
    from watchdog_plugin.author import Author
    from watchdog_plugin.item import Item
    from watchdog_plugin.onnx_model import OnnxModel
    from watchdog_plugin.tensors import Arrays

__all__ = ["PADDING_HEADER", "OnnxFunction"]

PADDING_HEADER = "x-carpool-padding"

_T = TypeVar("_T")


class _Work:
    """A batch under way: per item the call or its answer, and the outcomes of the calls."""

    __slots__ = ("entries", "outcomes", "waste")

    def __init__(self, entries: list[Call | Answer]) -> None:
        self.entries = entries
        self.outcomes: list[Arrays | CarpoolError] = []
        self.waste = Waste()


class OnnxFunction:
    """Reads requests, runs the model over those that can be read, answers all."""

    on_main_thread = False

    def __init__(self, model: OnnxModel, author: Author, name: str) -> None:
        self._model = model
        self._preprocess = _guarded("preprocess", author.preprocess)
        self._postprocess = _guarded("postprocess", author.postprocess)
        self._protocol = oip.OpenInference(model.signature, name)

    def warm_up(self, sizes: Sequence[int]) -> None:
        """Run the model on zeros.

        Raises:
            LoadError: it fails on them.
        """
        self._model.warm_up(sizes)

    def decode(self, items: Sequence[Item]) -> _Work:
        """Read every item; what cannot be read is answered with the reason."""
        return _Work([self._read(item) for item in items])

    def run(self, work: _Work) -> None:
        """Run the model over the items that could be read."""
        calls = [entry for entry in work.entries if isinstance(entry, Call)]
        work.outcomes = self._model.run(calls, work.waste)

    def encode(self, work: _Work) -> list[Answer]:
        """One answer an item, in order."""
        outcomes = iter(work.outcomes)
        return [
            _answered(entry, next(outcomes)) if isinstance(entry, Call) else entry
            for entry in work.entries
        ]

    def headers(self, work: _Work) -> list[tuple[str, str]]:
        """How much padding the model was fed, where lengths are declared to differ."""
        return [] if self._model.padding is None else [(PADDING_HEADER, str(work.waste))]

    def _read(self, item: Item) -> Call | Answer:
        try:
            if oip.owns(item.path):
                return self._protocol.open(item)
            if self._preprocess is not None:
                return self._read_raw(item, self._preprocess)
            return self._read_json(item)
        except (ItemError, CarpoolError) as error:
            return answers.failure(error.status, error)

    def _read_raw(self, item: Item, preprocess: Callable[[Item], object]) -> Call | Answer:
        value = preprocess(item)
        if isinstance(value, Reply):  # the author knows the answer without the model
            return answers.from_result(value)
        inputs = self._model.signature.one_row(value)
        return Call(inputs, self._model.signature.rows(inputs), self._raw_answer)

    def _read_json(self, item: Item) -> Call:
        body, tail = binary.open_body(item)
        if isinstance(body, dict) and "instances" in body:
            tail.end()
            return instances.open_call(body, self._model.signature, self._postprocess)
        if isinstance(body, dict) and "inputs" in body:
            return self._protocol.infer(body, tail)
        msg = (
            'expected {"instances": [...]} or {"inputs": [...]} for the model\'s inputs '
            f"{self._model.signature.described()}"
        )
        raise BadRequest(msg)

    def _raw_answer(self, outputs: Arrays) -> Answer:
        row = {name: out[0] if out.shape[:1] == (1,) else out for name, out in outputs.items()}
        if self._postprocess is not None:
            return answers.from_result(self._postprocess(row))
        return answers.json_answer(next(iter(row.values())) if len(row) == 1 else row)


def _answered(call: Call, outcome: Arrays | CarpoolError) -> Answer:
    if isinstance(outcome, CarpoolError):
        return answers.failure(outcome.status, outcome)
    try:
        return call.answer(outcome)
    except ItemError as error:
        return answers.failure(error.status, error)
    except TypeError as error:
        return answers.failure(500, f"the prediction cannot be written as JSON: {error}")


def _guarded(name: str, hook: Callable[[Any], _T] | None) -> Callable[[Any], _T] | None:
    """The author's hook, with whatever it raises turned into its one item's 500."""
    if hook is None:
        return None

    def call(value: Any) -> _T:  # noqa: ANN401  what a hook takes is the hook's own
        try:
            return hook(value)
        except ItemError:
            raise
        except Exception as error:
            logs.say_failure(name, error)
            msg = f"{name} raised {logs.describe(error)}"
            raise ItemError(msg, 500) from error

    return call
