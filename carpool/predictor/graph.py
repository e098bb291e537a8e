"""Operators of a model as a predictor sees them: kind, attributes, shapes that follow the batch.

A graph is what the runtime executes, after its optimiser; how it is read from a file, and how long
an operator takes, is not known here.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
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
SymbolicShape = tuple[tuple[int, int], ...]  # each dimension: so much, and so much for each item


class TensorShape(NamedTuple):
    """A tensor at one batch size.

    Attributes:
        datatype: Such as ``f32``.
        shape: Its sizes.
        constant: Whether it is part of the model, and may have been laid out in advance.
    """

    datatype: str
    shape: Shape
    constant: bool = False

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> float:
        """What it occupies."""
        return self.elements * _ELEMENT_BYTES.get(self.datatype, 1)

    def __str__(self) -> str:
        mark = "=" if self.constant else ""
        return f"{self.datatype}[{','.join(map(str, self.shape))}]{mark}"

    @classmethod
    def parse(cls, text: str) -> TensorShape:
        """What `str` makes of a form.

        Raises:
            ValueError: the text is none.
        """
        match = _FORM(text)
        if match is None:
            msg = f"{text!r}: expected a tensor such as f32[1,64,56,56]"
            raise ValueError(msg)
        sizes = tuple(int(size) for size in match[2].split(",") if size)
        return cls(match[1], sizes, bool(match[3]))


@dataclass(frozen=True)
class Case:
    """An operator at one batch size: what a profile database is keyed by.

    Attributes:
        kind: Such as ``nchwc.Conv``; operators of ONNX itself have no prefix.
        attributes: As sorted JSON.
        inputs: In order; an input left out has no datatype.
        outputs: In order.
    """

    kind: str
    attributes: str
    inputs: tuple[TensorShape, ...]
    outputs: tuple[TensorShape, ...]

    def __hash__(self) -> int:
        """Of texts, which remember theirs."""
        return hash((self.kind, self.attributes, self.shapes))

    @cached_property
    def given(self) -> Mapping[str, Any]:
        """The attributes by name."""
        found: Mapping[str, Any] = json.loads(self.attributes)
        return found

    @cached_property
    def shapes(self) -> str:
        """The inputs and outputs as one text."""
        return _joined(self.inputs) + ">" + _joined(self.outputs)

    @classmethod
    def parse(cls, kind: str, attributes: str, shapes: str) -> Case:
        """A case from the texts that a database keeps.

        Raises:
            ValueError: the shapes are ill-formed.
        """
        before, _, after = shapes.partition(">")
        return cls(kind, attributes, _parsed(before), _parsed(after))


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of a graph, for any batch size.

    Attributes:
        name: In the model.
        kind: As in `Case`.
        attributes: As in `Case`.
        inputs: Datatype, sizes, and whether it is constant.
        outputs: Likewise.
        after: Positions of the operators whose outputs it takes.
        otherwise: Of a branch, the attributes where it goes the other way.
    """

    name: str
    kind: str
    attributes: str
    inputs: tuple[tuple[str, SymbolicShape, bool], ...]
    outputs: tuple[tuple[str, SymbolicShape, bool], ...]
    after: tuple[int, ...] = ()
    otherwise: str = ""
    _cases: dict[int, Case] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def key(self) -> tuple[Any, ...]:
        """What its times are keyed by, wherever it is."""
        return self.kind, self.attributes, self.inputs, self.outputs

    @property
    def ways(self) -> tuple[Operator, ...]:
        """The operator for each way that a run may take."""
        if not self.otherwise:
            return (self,)
        return self, replace(self, attributes=self.otherwise, otherwise=self.attributes)

    def at(self, batch: int) -> Case:
        """The operator in a batch of this size."""
        found = self._cases.get(batch)
        if found is None:
            inputs, outputs = (
                tuple([_at(form, batch) for form in forms]) for forms in (self.inputs, self.outputs)
            )
            found = self._cases[batch] = Case(self.kind, self.attributes, inputs, outputs)
        return found


@dataclass(frozen=True)
class Graph:
    """A model as the runtime executes it.

    Attributes:
        model: Its name.
        operators: In the order of execution.
        fixed_batch: The one batch size it takes; None for any.
    """

    model: str
    operators: Sequence[Operator]
    fixed_batch: int | None = None

    @cached_property
    def alike(self) -> list[tuple[Operator, int]]:
        """One of all operators that are equal but for their places, with how many there are."""
        first: dict[object, Operator] = {}
        counts: Counter[object] = Counter()
        for operator in self.operators:
            first.setdefault(operator.key, operator)
            counts[operator.key] += 1
        return [(operator, counts[key]) for key, operator in first.items()]

    @property
    def fingerprint(self) -> str:
        """What tells this graph from others, whatever it is called.

        The runtime's optimiser does not order all of its operators alike at each load.
        """
        parts = sorted(operator.key for operator in self.operators)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    def admits(self, batch: int) -> bool:
        """Whether the model takes batches of this size."""
        return batch >= 1 and self.fixed_batch in (None, batch)


def _at(form: tuple[str, SymbolicShape, bool], batch: int) -> TensorShape:
    datatype, shape, constant = form
    return TensorShape(datatype, tuple([fixed + each * batch for fixed, each in shape]), constant)


def _joined(forms: Sequence[TensorShape]) -> str:
    return ";".join(map(str, forms))


def _parsed(text: str) -> tuple[TensorShape, ...]:
    return tuple(TensorShape.parse(part) for part in text.split(";")) if text else ()
