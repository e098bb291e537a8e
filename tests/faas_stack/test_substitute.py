"""Tests of ``${VAR:-default}`` substitution."""

from __future__ import annotations

import pytest

from carpool.validation.problems import Problems
from faas_stack.stack.substitute import substitute

ENV = {"A": "apple", "EMPTY": "", "dash-ed": "d"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain {text} $A", "plain {text} $A"),
        ("${A}", "apple"),
        ("<${B}>", "<>"),
        ("${B:-b c}", "b c"),
        ("${B-b}", ""),  # the dash belongs to the name, as in faas-cli
        ("${B=b}", "b"),
        ("${A:-b}", "apple"),
        ("${EMPTY:-b}", "b"),
        ("${dash-ed}", "d"),
        ("${B:-${A}}", "apple"),
        ("${B:-${C:-deep}}!", "deep!"),
        ("$$A", "$A"),
        ("$${A}", "${A}"),
        ("a\\/b\\\\c", "a/b\\c"),
        ("trailing $", "trailing $"),
        ("${A}${A}", "appleapple"),
    ],
)
def test_expressions_are_replaced_like_in_faas_cli(text: str, expected: str) -> None:
    """Expressions are replaced as faas-cli replaces them, and other text is kept."""
    problems = Problems()
    assert expected == substitute(text, ENV, "f", problems)
    assert 0 == len(problems)


@pytest.mark.parametrize("text", ["${", "${A", "${}", "${A:?x}", "${A/b/c}", "${B:-${A}"])
def test_malformed_expression_is_reported_with_line(text: str) -> None:
    """A malformed expression is a problem with its line."""
    problems = Problems()
    substitute(f"one\ntwo {text}", ENV, "stack.yaml", problems)
    with pytest.raises(Exception, match=r"^stack.yaml:2 = "):
        problems.raise_if_any()
