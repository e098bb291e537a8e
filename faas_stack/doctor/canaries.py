"""Checks of functions that serve a share of another function's calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.errors import Problem
from carpool.settings import LABEL_PREFIX
from carpool.validation.problems import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faas_stack.doctor.context import Case

__all__ = ["canary_missing"]

_LABEL = f"{LABEL_PREFIX}canary"


def canary_missing(case: Case) -> Iterator[Problem]:
    """Each canary is another function, in this file or deployed, without canaries of its own."""
    canaries = {c.function.name: c.settings.canary for c in case.contexts if c.settings}
    there = {function.name for function in case.stack.functions} | (case.around.deployed or set())
    for context in case.contexts:
        own = context.function.name
        for name in canaries.get(own, ()):
            if name not in there:
                hint = nearest(name, there) or "its calls will stay with the function itself"
                yield Problem(context.label(_LABEL), name, "a function of the stack", hint)
            elif canaries.get(name):
                hint = "a call is divided once: give all shares to one function"
                expected = "another function" if name == own else "a function without canaries"
                yield Problem(context.label(_LABEL), name, expected, hint)
