"""Checks of what scales the functions, its reachability, and the capacity of the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.errors import Problem
from carpool.settings import rows
from sidecar.options import SCALER_SECRET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faas_stack.doctor.context import Case, FunctionContext

__all__ = ["another_scaler", "batch_policy_unused", "front_without", "functions_over"]
__all__ += ["gpus_missing", "no_objective", "nobody_scales", "replicas_over", "scaler_silent"]
__all__ += ["scaler_complains", "surroundings_silent", "token_missing"]

_LOAD_ALONE = frozenset(("fixed", "openfaas"))  # built-in policies that plan without an objective
_OF_BATCHES = ("com.carpool.batch.policy", "com.carpool.batch.wait", "com.carpool.batch.params")
_REPLICAS = 5
_FUNCTIONS = 15
_WITHOUT_GPUS = ("faasd", "faas-netes", "carpool process")


def no_objective(context: FunctionContext) -> Iterator[Problem]:
    """A function whose scaling policy plans for an objective has one."""
    settings = context.settings
    if settings is None or context.objectives or settings.scale_policy in _LOAD_ALONE:
        return
    fix = "set com.carpool.slo, such as 200ms, or com.carpool.scale.policy to openfaas"
    expected = "an objective, com.carpool.slo, beside it"
    where = context.label("com.carpool.scale.policy")
    yield Problem(where, settings.scale_policy, expected, fix)


def batch_policy_unused(context: FunctionContext) -> Iterator[Problem]:
    """A function with a scaling policy sets no batch policy, which its plans would replace."""
    if not context.scaled:
        return
    function, settings = context.function, context.settings
    policy = settings.scale_policy if settings else ""
    for name in _OF_BATCHES:
        value = function.labels.get(name) or function.annotations.get(name)
        if value:
            expected = "no value beside a com.carpool.scale.policy other than fixed"
            fix = f"remove it: the plans of {policy} decide when batches leave"
            yield Problem(context.label(name), value, expected, fix)


def front_without(context: FunctionContext) -> Iterator[Problem]:
    """A function that names a scaler has a scaling policy other than ``fixed``."""
    where = context.function.environment.get("sidecar_scaler", "")
    if where and context.settings is not None and not context.scaled:
        expected = "a com.carpool.scale.policy other than fixed beside it"
        fix = "set the policy, or leave the address out: a front without instances serves nothing"
        yield Problem(context.env("sidecar_scaler"), where, expected, fix)


def token_missing(context: FunctionContext) -> Iterator[Problem]:
    """A function that names a scaler on another machine has the scaler's token."""
    function = context.function
    where = function.environment.get("sidecar_scaler", "")
    local = where.removeprefix("http://").startswith(("unix:", "127.", "localhost:", "[::1]"))
    given = function.environment.get("sidecar_scaler_token")
    if where and not (local or given or SCALER_SECRET in function.secrets):
        fix = "create it (faas-cli secret create) from the file of the scaler's --token-file"
        name = f"functions.{function.name}.secrets"
        yield Problem(name, ", ".join(function.secrets), SCALER_SECRET, fix)


def nobody_scales(case: Case) -> Iterator[Problem]:
    """Every function to be scaled names its scaler, if the gateway does not know one."""
    if case.around.scaler or not (case.around.provider or case.around.community):
        return  # the provider tells sidecars, as `carpool up` does, too
    for context in case.contexts:
        if context.scaled and not context.function.environment.get("sidecar_scaler"):
            fix = "set sidecar_scaler: HOST:8090 and start carpool scaler run there"
            expected = "the scaler's address: without it the policy has no effect"
            yield Problem(context.env("sidecar_scaler"), "", expected, fix)


def scaler_silent(case: Case) -> Iterator[Problem]:
    """Every scaler that a function names answers."""
    reasons = dict(case.around.silent)
    for context in case.contexts:
        where = context.function.environment.get("sidecar_scaler", "")
        if where in reasons:
            fix = f"start it: carpool scaler run --listen {where} ({reasons[where]})"
            yield Problem(context.env("sidecar_scaler"), where, "a scaler that answers", fix)


def scaler_complains(case: Case) -> Iterator[Problem]:
    """The scaler that runs for this stack reports no problem."""
    for function, note in case.around.complaints:
        fix = (
            f"carpool scaler explain {function} has the details"
            if function
            else "see docs/scaler.md"
        )
        yield Problem(f"functions.{function}" if function else "scaler", note, "no problem", fix)


def surroundings_silent(case: Case) -> Iterator[Problem]:
    """Every address given as an option answers."""
    for name, where, reason in case.around.troubles:
        yield Problem(name, where, "an address that answers", reason)


def another_scaler(case: Case) -> Iterator[Problem]:
    """No AlertManager runs beside functions that Carpool's scaler scales."""
    scaled = [context.function.name for context in case.contexts if context.scaled]
    for where in case.around.alert_managers if scaled else ():
        fix = "remove it (Helm: alertmanager.create=false): it sets replicas back to 5 or to min"
        expected = f"none beside {', '.join(scaled)}, which the scaler scales"
        yield Problem(where, "AlertManager", expected, fix)


def replicas_over(case: Case) -> Iterator[Problem]:
    """On OpenFaaS's Community Edition no function requests more than 5 replicas."""
    if not case.around.community:
        return
    for context in case.contexts:
        for name in ("min", "max"):
            for value, where in _bounds(context, name):
                if value > _REPLICAS:
                    fix = f"the Community Edition's limit ({case.around.community})"
                    expected = f"at most {_REPLICAS}"
                    yield Problem(context.label(where), str(value), expected, fix)


def _bounds(context: FunctionContext, name: str) -> Iterator[tuple[int, str]]:
    theirs = f"com.openfaas.scale.{name}"
    text = context.function.labels.get(theirs, "")
    if text.isascii() and text.isdecimal() and len(text) < 10:  # noqa: PLR2004
        yield int(text), theirs
    ours = next(row for row in rows() if row.key == f"scale.{name}")
    value = getattr(context.settings, ours.field, None)
    if value is not None:
        yield value, ours.label


def functions_over(case: Case) -> Iterator[Problem]:
    """On OpenFaaS's Community Edition there are no more than 15 functions, classes included."""
    if not case.around.community:
        return
    names = {context.function.name for context in case.contexts} | (case.around.deployed or set())
    scaled = {context.function.name for context in case.contexts if context.scaled}
    classes = {name for name in names if name.partition("--")[0] in scaled and "--" in name}
    least = len(names - classes) + max(len(scaled), len(classes))
    if least > _FUNCTIONS:
        expected = f"at most {_FUNCTIONS}"
        fix = f"a class of instances is a function too ({case.around.community})"
        yield Problem("functions", str(least), expected, fix)


def gpus_missing(case: Case) -> Iterator[Problem]:
    """If functions request a GPU, the provider has one."""
    around = case.around
    unsaid = around.provider if around.machine is None else ""
    blind = next((name for name in _WITHOUT_GPUS if unsaid.startswith(name)), "")
    if around.gpus != 0 and not blind:
        return
    for context in case.contexts:
        if context.settings is not None and context.settings.gpu:
            fix = "carpool provider docker --gpus N has GPUs (CARPOOL_GPUS=N for the compose file)"
            expected = f"0, as {f'{blind} gives functions none' if blind else 'it has none'}"
            value = f"{context.settings.gpu:g}"
            yield Problem(context.label("com.carpool.gpu"), value, expected, fix)
