"""The stack file in docs/canary.md is valid, and divides calls as the page says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from faas_stack.provider.canary import VERSION_HEADER, Division
from tests.docs.snippets import take_one
from tests.faas_stack.doctor_case import Doctor

if TYPE_CHECKING:
    import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "canary.md").read_text(encoding="utf-8")
STACK = take_one("docs/canary.md", language="yaml")


def test_doctor_accepts_canary_in_stack_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The doctor accepts the canary, and reports one that does not exist."""
    functions = yaml.safe_load(STACK)["functions"]
    doctor = Doctor(tmp_path, capsys)
    assert [] == [f for f in doctor.says_of(functions) if f["check"] == "canary"]
    del functions["classify-v2"]
    (missing,) = [f for f in doctor.says_of(functions) if f["check"] == "canary"]
    assert "classify-v2" == missing["value"]


def test_shares_and_header_match_page() -> None:
    """Ten of any hundred calls go to the canary, and the page gives the header's name."""
    division = Division("classify", {"classify-v2": 10.0})
    assert 10 == [division.next(None) for _ in range(100)].count("classify-v2")
    assert VERSION_HEADER.decode() in PAGE.lower()
    assert "x-carpool-user" in PAGE.lower()
