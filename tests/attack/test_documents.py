"""Mutated messages and documents are read, or refused by the documented error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.attack import documents

if TYPE_CHECKING:
    from pathlib import Path

    from tests.attack.effort import Effort


@pytest.mark.parametrize("name", documents.WIRE)
def test_mutated_batch_is_complete_or_refused(effort: Effort, name: str) -> None:
    """A batch that is read has a complete row for each item, and heads are valid or refused."""
    rounds = effort.rounds("messages between sidecar and handler", full=500_000, short=3_000)
    assert {"taken", "refused"} == documents.read_wire(name, rounds).keys()


@pytest.mark.parametrize("name", documents.TEXTS)
def test_mutated_document_is_accepted_or_refused(tmp_path: Path, effort: Effort, name: str) -> None:
    """This holds for every reader of what people and programs write."""
    rounds = effort.rounds(name, full=10_000, short=100)
    assert {"taken", "refused"} == documents.read_texts(name, tmp_path, rounds).keys()
