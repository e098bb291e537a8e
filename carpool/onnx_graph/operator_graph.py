"""Operators of a model as predictors see them: type, attributes, shapes that depend on the batch.

A graph is what the runtime executes after optimization. How it is read from a file, and how long an
operator takes, is decided elsewhere.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Case", "Graph", "Operator", "Shape", "SymbolicShape", "TensorShape"]

_ELEMENT_BYTES: dict[str, float] = {
    "f64": 8,
    "i64": 8,
    "u64": 8,
    "f32": 4,
    "i32": 4,
    "u32": 4,
    "str": 32,
}
_ELEMENT_BYTES |= {"f16": 2, "bf16": 2, "i16": 2, "u16": 2, "i4": 0.5, "u4": 0.5}
_FORM = re.compile(r"(\w*)\[([\d,]*)\](=?)").fullmatch

Shape = tuple[int, ...]
SymbolicShape = tuple[tuple[int, int], ...]  # for each dimension, a constant and an amount per item


class TensorShape(NamedTuple):
    """A tensor at one batch size.

    Attributes:
        datatype: Datatype, such as ``f32``.
        shape: Sizes of the dimensions.
        constant: Whether it is part of the model, so that it may have been laid out in advance.
    """

    datatype: str
    shape: Shape
    constant: bool = False

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> float:
        """Size in bytes."""
        return self.elements * _ELEMENT_BYTES.get(self.datatype, 1)

    def __str__(self) -> str:
        mark = "=" if self.constant else ""
        return f"{self.datatype}[{','.join(map(str, self.shape))}]{mark}"

    @classmethod
    def parse(cls, text: str) -> TensorShape:
        """Return the tensor shape that `str` wrote.

        Raises:
            ValueError: the text is not a tensor shape.
        """
        match = _FORM(text)
        if match is None:
            msg = f"{text!r}: expected a tensor such as f32[1,64,56,56]"
            raise ValueError(msg)
        sizes = tuple(int(size) for size in match[2].split(",") if size)
        return cls(match[1], sizes, bool(match[3]))


@dataclass(frozen=True)
class Case:
    """An operator at one batch size, the key of a profile database.

    Attributes:
        op_type: Type, such as ``nchwc.Conv``; operators of ONNX itself have no prefix.
        attributes: Attributes as sorted JSON.
        inputs: Inputs in order; an omitted input has no datatype.
        outputs: Outputs in order.
    """

    op_type: str
    attributes: str
    inputs: tuple[TensorShape, ...]
    outputs: tuple[TensorShape, ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the hash once, because tables of times are keyed by cases."""
        own = hash((self.op_type, self.attributes, self.inputs, self.outputs))
        object.__setattr__(self, "_hash", own)

    def __hash__(self) -> int:
        """Return the hash of the fields."""
        return self._hash

    def __reduce__(self) -> tuple[type[Case], tuple[object, ...]]:
        """Pickle the fields without the hash, which differs between processes."""
        return Case, (self.op_type, self.attributes, self.inputs, self.outputs)

    @property
    def given(self) -> Mapping[str, Any]:
        """Attributes by name."""
        return _attributes(self.attributes)

    @cached_property
    def shapes(self) -> str:
        """Inputs and outputs as one string."""
        return _joined(self.inputs) + ">" + _joined(self.outputs)

    @classmethod
    def parse(cls, op_type: str, attributes: str, shapes: str) -> Case:
        """Return a case from the strings that a database stores.

        Raises:
            ValueError: the shapes are ill-formed.
        """
        before, _, after = shapes.partition(">")
        return cls(op_type, attributes, _parsed(before), _parsed(after))


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of a graph, for any batch size.

    Attributes:
        name: Name in the model.
        op_type: As in `Case`.
        attributes: As in `Case`.
        inputs: Datatype, sizes, and whether it is constant, of each input.
        outputs: The same of each output.
        after: Positions of the operators whose outputs it uses.
        otherwise: For a branch, its attributes if the other branch is taken.
    """

    name: str
    op_type: str
    attributes: str
    inputs: tuple[tuple[str, SymbolicShape, bool], ...]
    outputs: tuple[tuple[str, SymbolicShape, bool], ...]
    after: tuple[int, ...] = ()
    otherwise: str = ""
    _cases: dict[int, Case] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def key(self) -> tuple[Any, ...]:
        """Key of its times, independent of its place in the graph."""
        return self.op_type, self.attributes, self.inputs, self.outputs

    @property
    def branches(self) -> tuple[Operator, ...]:
        """The operator once for each branch that a run may take."""
        if not self.otherwise:
            return (self,)
        return self, replace(self, attributes=self.otherwise, otherwise=self.attributes)

    def at(self, batch: int) -> Case:
        """Return the operator at this batch size."""
        case = self._cases.get(batch)
        if case is None:
            inputs, outputs = (
                tuple([_at(shape, batch) for shape in shapes])
                for shapes in (self.inputs, self.outputs)
            )
            case = self._cases[batch] = Case(self.op_type, self.attributes, inputs, outputs)
        return case


@dataclass(frozen=True)
class Graph:
    """A model as the runtime executes it.

    Attributes:
        model: Name of the model.
        operators: Operators in the order of execution.
        fixed_batch: The only batch size it accepts; None for any.
    """

    model: str
    operators: Sequence[Operator]
    fixed_batch: int | None = None

    @cached_property
    def alike(self) -> list[tuple[Operator, int]]:
        """One of each set of operators that are equal except for their places, with its size."""
        counts = Counter(self.numbers)
        first: dict[int, Operator] = {}
        for number, operator in zip(self.numbers, self.operators, strict=True):
            first.setdefault(number, operator)
        return [(operator, counts[number]) for number, operator in first.items()]

    @cached_property
    def numbers(self) -> list[int]:
        """For each operator, the position in `alike` of the one that is equal to it."""
        known: dict[object, int] = {}
        return [known.setdefault(operator.key, len(known)) for operator in self.operators]

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the operators, independent of the model's name and of their order.

        The runtime's optimizer does not order all operators the same at each load.
        """
        import hashlib  # noqa: PLC0415  a stored graph has its fingerprint

        parts = sorted(operator.key for operator in self.operators)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    def admits(self, batch: int) -> bool:
        """Return whether the model accepts batches of this size."""
        return batch >= 1 and self.fixed_batch in (None, batch)


@lru_cache(maxsize=1024)
def _attributes(text: str) -> Mapping[str, Any]:
    attributes: Mapping[str, Any] = json.loads(text)
    return attributes


@lru_cache(maxsize=4096)  # what one operator writes, others read
def _at(tensor: tuple[str, SymbolicShape, bool], batch: int) -> TensorShape:
    datatype, shape, constant = tensor
    return TensorShape(datatype, tuple([fixed + each * batch for fixed, each in shape]), constant)


def _joined(shapes: Sequence[TensorShape]) -> str:
    return ";".join(map(str, shapes))


def _parsed(text: str) -> tuple[TensorShape, ...]:
    return tuple(TensorShape.parse(part) for part in text.split(";")) if text else ()
