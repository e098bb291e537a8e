"""Several models in one function: each request is routed to the model that it names.

A folder ``models`` in the function's folder holds one folder per model. Requests name it in their
path: ``/v2/models/NAME/...``, or ``/NAME`` for requests in other formats. If all models run stage
by stage, they share one executor, which considers the deadlines of all before it admits a request.
This module knows models by name, but not how they are read or run.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from carpool.caching import SmallCache
from carpool.errors import NotFound
from carpool.validation.problems import nearest
from watchdog_plugin import answers
from watchdog_plugin.protocols import oip
from watchdog_plugin.protocols.repository import STATS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from watchdog_plugin.answers import Answer
    from watchdog_plugin.function import Function
    from watchdog_plugin.item import Item

__all__ = ["Colocated"]

_MODELS = "/v2/models/"


class _Work:
    """A batch being processed.

    Attributes:
        answers: Responses by the item's index in the batch.
        parts: Per model: its function, the indices of its items, and the function's own work.
    """

    __slots__ = ("answers", "parts")

    def __init__(self) -> None:
        self.answers: dict[int, Answer] = {}
        self.parts: list[tuple[Function[Any], list[int], Any]] = []


class Colocated:
    """Routes each request to the model that it names.

    Args:
        functions: Functions by model name; none of them may require the main thread.
    """

    on_main_thread = False

    def __init__(self, functions: Mapping[str, Function[Any]]) -> None:
        self._functions = functions
        counts = [function.concurrency for function in functions.values()]
        self.concurrency = sum(counts) if min(counts) > 1 else 1
        self._model_of = SmallCache(self._find)

    def warm_up(self, sizes: Sequence[int]) -> None:
        """Warm up each model, as `Function.warm_up` does."""
        for function in self._functions.values():
            function.warm_up(sizes)

    def decode(self, items: Sequence[Item]) -> _Work:
        """Group the items by model, and decode each group together."""
        work = _Work()
        places: dict[str, list[int]] = {}
        for place, item in enumerate(items):
            model = self._model_of(item.path)
            if isinstance(model, NotFound):
                work.answers[place] = answers.failure(model.status, model)
            else:
                places.setdefault(model, []).append(place)
        for name, own in places.items():
            function = self._functions[name]
            work.parts.append((function, own, function.decode([items[place] for place in own])))
        return work

    def run(self, work: _Work) -> None:
        """Run each model over its items: concurrently if all models allow it, else one by one."""
        parts = [(function, part) for function, _, part in work.parts]
        if len(parts) > 1 and self.concurrency > 1:
            with ThreadPoolExecutor(len(parts)) as threads:
                list(threads.map(_run, parts))  # raises what one of them raised
            return
        for each in parts:
            _run(each)

    def encode(self, work: _Work) -> list[Answer]:
        """Return one response per item, in order."""
        for function, places, part in work.parts:
            work.answers.update(zip(places, function.encode(part), strict=True))
        return [work.answers[place] for place in range(len(work.answers))]

    def headers(self, work: _Work) -> list[tuple[str, str]]:
        """Return the headers of all models' functions."""
        return [header for function, _, part in work.parts for header in function.headers(part)]

    def _find(self, path: str) -> str | NotFound:
        """Return the name of the model that a path names, or the error if there is none."""
        names = list(self._functions)
        of_all = path.rstrip("/") == STATS and "stats" not in names
        if oip.owns(path) and (of_all or not path.startswith(_MODELS)):
            return names[0]  # about the server, which any of them knows
        named = unquote(path.removeprefix(_MODELS).lstrip("/").partition("/")[0])
        if named in self._functions:
            return named
        hint = nearest(named, names)
        return NotFound(
            f"model {named[:80]!r} is not known; this function serves {', '.join(names)}: "
            f"expected {_MODELS}NAME/infer or /NAME{'; ' + hint if hint else ''}"
        )


def _run(part: tuple[Function[Any], Any]) -> None:
    function, work = part
    function.run(work)
