"""The wire format of protocol buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from carpool.onnx_graph import protobuf

if TYPE_CHECKING:
    from collections.abc import Sequence


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_integers_survive_the_wire(values: Sequence[int]) -> None:
    """Signs and sizes are kept, one by one and packed."""
    single = b"".join(protobuf.number_field(7, value) for value in values)
    found = [field.integer() for field in protobuf.fields(memoryview(single))]
    assert list(values) == found
