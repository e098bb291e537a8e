"""Tensors of requests and models: datatypes, shapes, and whether they match.

Uses the datatype names of the Open Inference Protocol, but knows neither its JSON nor the runtime
that executes a model. Messages name the tensor, what was given and what the model expects.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from carpool.errors import BadRequest, shown
from watchdog_plugin.item import ItemError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from watchdog_plugin.answers import Answer

__all__ = [
    "DTYPES",
    "Array",
    "Arrays",
    "Call",
    "Shape",
    "Signature",
    "TensorSpec",
    "read_shape",
    "shape_of_all",
]

Array = np.ndarray[Any, np.dtype[Any]]
Arrays = Mapping[str, Array]
Shape = tuple[int, ...]

_ROWS = ""  # no symbol has this name
_LARGEST_EMPTY = 1 << 20  # limit of the product of an empty tensor's sizes other than zero

DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BYTES": np.dtype(object),
}


class Call(NamedTuple):
    """Requests of equal shapes joined to one: the rows of the first, then those of the second, etc.

    Attributes:
        inputs: Inputs of all requests; those of a single request need not have rows.
        rows: Number of rows of each request.
        answers: For each request, a function that returns its response, given its outputs.
    """

    inputs: Arrays
    rows: int
    answers: Sequence[Callable[[Arrays], Answer]]

    def apart(self) -> list[Call]:
        """Return one call for each of the requests."""
        if len(self.answers) == 1:
            return [self]
        starts = range(0, self.rows * len(self.answers), self.rows)
        return [
            Call(
                {name: a[at : at + self.rows] for name, a in self.inputs.items()}, self.rows, [made]
            )
            for at, made in zip(starts, self.answers, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output of a model; a dimension is a size, a symbol, or None for any."""

    name: str
    datatype: str
    shape: tuple[int | str | None, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy data type of its values."""
        return DTYPES[self.datatype]

    @property
    def sizes(self) -> list[int]:
        """The shape in the protocol's form, with -1 for any size."""
        return [size if isinstance(size, int) else -1 for size in self.shape]

    @property
    def row_bytes(self) -> int:
        """Minimum size of a row in bytes."""
        sizes = [size for size in self.shape[1:] if isinstance(size, int)]
        return math.prod(sizes) * self.dtype.itemsize

    @property
    def any_rows(self) -> bool:
        """Whether the first dimension is free, so that requests can share a run."""
        return bool(self.shape) and not isinstance(self.shape[0], int)

    @property
    def has_rows(self) -> bool:
        """Whether the first dimension counts rows, as it is free or fixed to one."""
        return self.any_rows or self.shape[:1] == (1,)

    def takes(self, shape: Shape) -> bool:
        """Return whether an array of this shape fits, whatever its symbols' sizes are elsewhere."""
        fixed = zip(shape, self.shape, strict=False)
        fits = all(size == wanted for size, wanted in fixed if isinstance(wanted, int))
        return fits and len(shape) == len(self.shape) and not (self.any_rows and shape[0] == 0)

    def shared(self, shape: Shape) -> Iterator[tuple[str, int]]:
        """Yield the sizes of a fitting shape that other inputs share, by symbol; rows first."""
        if self.any_rows:
            yield _ROWS, shape[0]
        for wanted, size in zip(self.shape, shape, strict=True):
            if isinstance(wanted, str):
                yield wanted, size

    def __str__(self) -> str:
        return f"{self.name!r} {self.datatype} {self.sizes}"


class Signature:
    """The inputs and outputs of a model; checks whether given arrays fit."""

    def __init__(self, inputs: Iterable[TensorSpec], outputs: Iterable[TensorSpec]) -> None:
        self.inputs = {spec.name: spec for spec in inputs}
        self.outputs = {spec.name: spec for spec in outputs}
        # The least size of the outputs of a row; free dimensions count as one.
        self.row_bytes = sum(spec.row_bytes for spec in self.outputs.values() if spec.any_rows)
        # Requests of one function repeat the same few shapes; misfits raise and are not kept.
        self._rows_of = functools.lru_cache(maxsize=1024)(self._check_shapes)
        self._only = next(iter(self.inputs.values())) if len(self.inputs) == 1 else None
        self._only_dtype = self._only and self._only.dtype
        self._only_has_rows = self._only is not None and self._only.has_rows

    def input(self, name: object) -> TensorSpec:
        """Return the input called ``name``.

        Raises:
            BadRequest: The model has no such input.
        """
        spec = self.inputs.get(name) if isinstance(name, str) else None
        if spec is None:
            msg = f"input {shown(name)} is not known; the model's inputs are {self.described()}"
            raise BadRequest(msg)
        return spec

    @property
    def has_free_sizes(self) -> bool:
        """Whether an input has a free size besides the number of rows."""
        shapes = [spec.shape[1:] for spec in self.inputs.values()]
        return any(not isinstance(size, int) for shape in shapes for size in shape)

    def described(self) -> str:
        """Return a description of the inputs on one line."""
        return ", ".join(map(str, self.inputs.values()))

    def rows(self, arrays: Arrays, requests: int = 1) -> int:
        """Return the number of rows of each of ``requests`` requests of equal shapes.

        Raises:
            BadRequest: An input is missing, or its shape does not fit the model.
        """
        for name in self.inputs:
            if name not in arrays:
                msg = f"input {name!r} is missing; the model's inputs are {self.described()}"
                raise BadRequest(msg)
        shapes = tuple([arrays[name].shape for name in self.inputs])
        if requests > 1:
            shapes = tuple([(shape[0] // requests, *shape[1:]) for shape in shapes])
        return self._rows_of(shapes)

    def one_row(self, value: object) -> Arrays:
        """Convert the result of `preprocess` for one item to inputs with a first dimension of one.

        Raises:
            ItemError: With status 500 if it does not fit the model's inputs in name, datatype or
                shape.
        """
        only = self._only
        if only is not None and type(value) is np.ndarray and value.dtype == self._only_dtype:
            array = value[None] if self._only_has_rows else value
            if self._takes((array.shape,)):
                return {only.name: array}
        if not isinstance(value, Mapping):
            if only is None:
                msg = f"preprocess returned one value, expected a dict of {self.described()}"
                raise ItemError(msg, 500)
            value = {only.name: value}
        if value.keys() != self.inputs.keys():
            names = ", ".join(map(shown, itertools.islice(value, 8))) or "nothing"
            msg = f"preprocess returned {names}, expected a dict of {self.described()}"
            raise ItemError(msg, 500)
        arrays = {name: _cast(spec, value[name]) for name, spec in self.inputs.items()}
        try:
            self.rows(arrays)
        except BadRequest as error:  # the function's mistake, not the caller's
            msg = f"preprocess returned the wrong shape: {error}"
            raise ItemError(msg, 500) from error
        return arrays

    def _takes(self, shapes: tuple[Shape, ...]) -> bool:
        try:
            return self._rows_of(shapes) > 0
        except BadRequest:
            return False

    def _check_shapes(self, shapes: tuple[Shape, ...]) -> int:
        """Return the number of rows of inputs with these shapes.

        Raises:
            BadRequest: A shape does not fit its input, or inputs disagree in a size that they
                share: a symbol of the model's, or the number of rows.
        """
        shared: dict[str, tuple[int, str]] = {}  # size, and the first input that has it
        for spec, shape in zip(self.inputs.values(), shapes, strict=True):
            if not spec.takes(shape):
                msg = f"input {spec.name!r} has the shape {list(shape)}, the model expects {spec}"
                raise BadRequest(msg)
            for symbol, size in spec.shared(shape):
                first, name = shared.setdefault(symbol, (size, spec.name))
                if first != size:
                    what = "rows" if symbol == _ROWS else f"the size {symbol!r}"
                    msg = (
                        f"the inputs disagree in {what}: {first} in {name!r}, "
                        f"{size} in {spec.name!r}; expected the same in each"
                    )
                    raise BadRequest(msg)
        return shared.get(_ROWS, (1, ""))[0]


def _cast(spec: TensorSpec, value: object) -> Array:
    try:
        array = np.asarray(value)
    except ValueError as error:
        msg = (
            f"preprocess returned {spec.name!r}, which is not an array ({error}); "
            f"the model expects {spec}"
        )
        raise ItemError(msg, 500) from error
    if array.dtype != spec.dtype:
        if not np.can_cast(array.dtype, spec.dtype, "same_kind"):
            msg = f"preprocess returned {spec.name!r} as {array.dtype}, the model expects {spec}"
            raise ItemError(msg, 500)
        array = array.astype(spec.dtype)
    return array[None] if spec.has_rows else array


def read_shape(spec: TensorSpec, value: object) -> Shape:
    """Return the shape that a request gives for an input.

    Raises:
        BadRequest: It is not a shape, has the wrong number of dimensions, or is large although it
            holds no values: only values are bounded by the length of the body.
    """
    if (
        not isinstance(value, list)
        or len(value) != len(spec.shape)
        or not all(map(_is_size, value))
    ):
        msg = f"input {spec.name!r}: shape is {shown(value)}, the model expects {spec}"
        raise BadRequest(msg)
    if 0 in value and math.prod(filter(None, value)) > _LARGEST_EMPTY:
        msg = f"input {spec.name!r}: shape is {shown(value)}, too large for a tensor of no values"
        raise BadRequest(msg)
    return tuple(value)


def _is_size(value: object) -> bool:
    return type(value) is int and value >= 0  # a boolean is an int, and no size


def shape_of_all(shape: Shape, requests: int) -> Shape:
    """Return the shape of the joined rows of ``requests`` requests that have ``shape`` each.

    Raises:
        BadRequest: There are several requests, and the shape has no rows.
    """
    if requests == 1:
        return shape
    if not shape:
        msg = "expected a shape with rows"
        raise BadRequest(msg)
    return (requests * shape[0], *shape[1:])
