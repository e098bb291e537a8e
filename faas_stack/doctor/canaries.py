"""Checks of functions that serve a share of another function's calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.errors import Problem
from carpool.settings import CANARY_LABEL, LABEL_PREFIX
from carpool.validation.problems import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faas_stack.doctor.context import Case, FunctionContext

__all__ = ["callers_unknown", "canary_missing"]


def canary_missing(case: Case) -> Iterator[Problem]:
    """Each canary is another function, in this file or deployed, without canaries of its own."""
    canaries = {c.function.name: c.settings.canary for c in case.contexts if c.settings}
    there = {function.name for function in case.stack.functions} | (case.around.deployed or set())
    for context in case.contexts:
        own = context.function.name
        for name in canaries.get(own, ()):
            if name not in there:
                hint = nearest(name, there) or "its calls will stay with the function itself"
                yield Problem(context.label(CANARY_LABEL), name, "a function of the stack", hint)
            elif canaries.get(name):
                hint = "a call is divided once: give all shares to one function"
                expected = "another function" if name == own else "a function without canaries"
                yield Problem(context.label(CANARY_LABEL), name, expected, hint)


def callers_unknown(case: Case) -> Iterator[Problem]:
    """Each canary in this file allows the applications and origins of the function's callers."""
    contexts = {context.function.name: context for context in case.contexts}
    for context in case.contexts:
        for name in context.settings.canary if context.settings else ():
            if name in contexts:
                yield from _unknown(context, contexts[name])


def _unknown(context: FunctionContext, canary: FunctionContext) -> Iterator[Problem]:
    """Yield what a function's canary does not allow that the function does."""
    own, other = context.settings, canary.settings
    if own is None or other is None:
        return
    apps = {app.name for app in own.apps} - {app.name for app in other.apps}
    if other.apps:
        yield from _missing(context, canary, "apps", apps, "they get 400")
    if "*" not in other.cors_origins:
        origins = set(own.cors_origins) - set(other.cors_origins)
        result = "their web pages cannot read the response"
        yield from _missing(context, canary, "cors.origins", origins, result)


def _missing(
    context: FunctionContext, canary: FunctionContext, name: str, missing: set[str], result: str
) -> Iterator[Problem]:
    """Yield a problem if values of an annotation are missing; ``result`` is what callers get."""
    if missing:
        key = f"{LABEL_PREFIX}{name}"
        where = f"functions.{canary.function.name}.annotations.{key}"
        own = context.function.name
        fix = f"add {', '.join(sorted(missing))}: {result}, if the canary answers for {own}"
        value = canary.function.annotations.get(key, "")
        yield Problem(where, value, f"all that {own} has", fix)
