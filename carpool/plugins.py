"""Finding plugins by name: built in, an installed package's entry point, or ``pkg.mod:Class``.

Plugins are policies, and backends of the provider. Names of built-ins are strings in one table,
imported on demand, so that choosing one policy never imports another's dependencies. No plugin
registers itself when imported. A plugin is created with the parameters that its ``Params``
declares; those of a policy may also be given under other servers' names for them (`Knob`).
"""

from __future__ import annotations

import dataclasses
import importlib
import types
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from carpool.errors import CarpoolError, ConfigError, Problem
from carpool.validation.problems import Problems, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

__all__ = [
    "BUILT_IN",
    "GROUPS",
    "Kind",
    "Knob",
    "ListedPolicy",
    "build",
    "knobs",
    "listed",
    "load",
    "resolve",
]

Kind = Literal["batch", "scale", "prewarm", "backend"]

BUILT_IN: dict[Kind, dict[str, str]] = {
    "batch": {
        "none": "sidecar.policies.none:NoBatching",
        "fixed": "sidecar.policies.fixed:FixedWindow",
        "deadline": "sidecar.policies.deadline:Deadline",
        "adaptive": "sidecar.policies.adaptive:Adaptive",
    },
    "scale": {
        "fixed": "scaler.policies.fixed:Fixed",
        "openfaas": "scaler.policies.openfaas:OpenFaas",
        "infless": "scaler.policies.infless.policy:Infless",
        "batch": "scaler.policies.batch.policy:Batch",
        "harmonybatch": "scaler.policies.harmonybatch.policy:HarmonyBatch",
        "infaas": "scaler.policies.infaas.policy:Infaas",
        "carpool": "scaler.policies.carpool.policy:Carpool",
    },
    "prewarm": {
        "fixed": "scaler.prewarm.fixed:FixedKeepAlive",
        "hhp": "scaler.prewarm.hybrid_histogram:HybridHistogram",
        "lsth": "scaler.prewarm.long_short_histogram:LongShortHistogram",
        "breakeven": "scaler.prewarm.breakeven:BreakEven",
    },
    "backend": {},  # see `_BACKEND_COMMANDS`
}
_BACKEND_COMMANDS = ("docker", "kubernetes")  # built in, each with options of its own
GROUPS: dict[Kind, str] = {
    "batch": "carpool.batch_policies",
    "scale": "carpool.scale_policies",
    "prewarm": "carpool.prewarm_policies",
    "backend": "carpool.provider_backends",
}


@dataclass(frozen=True, slots=True)
class ListedPolicy:
    """A policy's name, its ``module:Class``, and its origin: ``built-in`` or a distribution."""

    name: str
    target: str
    origin: str


@dataclass(frozen=True, slots=True)
class Knob:
    """Another server's name for a parameter, or for a setting that is elsewhere in Carpool.

    Attributes:
        name: Name in the other server.
        servers: Servers that use it, for the documentation.
        parameter: The policy's own parameter; if empty, there is none, and the knob is refused.
        read: Converts its value to the parameter's; raises ``ValueError`` or ``TypeError``.
        expected: Description of valid values.
        note: What to set instead if it is refused; else a remark on the conversion.
    """

    name: str
    servers: str
    parameter: str = ""
    read: Callable[[Any], Any] = lambda value: value
    expected: str = "no value: no batch policy here has this parameter"
    note: str = ""


def listed(kind: Kind) -> list[ListedPolicy]:
    """Return all named policies, built-ins first; a name with two owners is listed twice."""
    built_in = [ListedPolicy(name, target, "built-in") for name, target in BUILT_IN[kind].items()]
    import importlib.metadata  # noqa: PLC0415 - a sidecar with a built-in policy does without

    points = importlib.metadata.entry_points(group=GROUPS[kind])
    installed = [
        ListedPolicy(p.name, p.value, p.dist.name if p.dist else "unknown") for p in points
    ]
    return built_in + sorted(set(installed), key=lambda policy: (policy.name, policy.origin))


def resolve(kind: Kind, name: str) -> type[Any]:
    """Return the policy class for ``name``; installed packages are searched unless it is built in.

    Raises:
        ConfigError: the name is unknown or ambiguous, or its class cannot be imported.
    """
    setting = "provider" if kind == "backend" else f"{kind}.policy"
    if target := BUILT_IN[kind].get(name):
        return load(setting, target)
    known = listed(kind)
    owners = [policy for policy in known if policy.name == name]
    problems = Problems()
    if len(owners) > 1:
        both = " and ".join(f"{policy.origin} ({policy.target})" for policy in owners)
        problems.add(setting, name, "a name that is registered once", f"it names {both}")
    elif not owners and ":" not in name:
        own = _BACKEND_COMMANDS if kind == "backend" else ()
        names = sorted({policy.name for policy in known}.union(own))
        hint = nearest(name, names)
        problems.add(setting, name, f"one of {', '.join([*names, 'pkg.module:Class'])}", hint)
    problems.raise_if_any()
    return load(setting, owners[0].target if owners else name)


def load(setting: str, target: str) -> type[Any]:
    """Import the class at ``module:Class``, given as the user's value of ``setting``.

    Raises:
        ConfigError: there is no such module, or no such class in it.
    """
    module_name, _, class_name = target.partition(":")
    expected = "an importable pkg.module:Class"
    try:
        target_class: object = importlib.import_module(module_name)
        for part in class_name.split("."):
            target_class = getattr(target_class, part)
    except (ImportError, AttributeError, SyntaxError, TypeError, ValueError) as error:
        raise ConfigError([Problem(setting, target, expected, str(error))]) from error
    except (Exception, SystemExit) as error:  # a module may do anything when it is imported
        hint = f"{type(error).__name__}: {error}"
        raise ConfigError([Problem(setting, target, expected, hint)]) from error
    if not isinstance(target_class, type):
        hint = f"{class_name} is a {type(target_class).__name__}, not a class"
        raise ConfigError([Problem(setting, target, expected, hint)])
    return target_class


def knobs(policy_class: type[Any]) -> Mapping[str, Knob]:
    """Return the policy's ``knobs``, by name: other servers' names that it accepts."""
    return {knob.name: knob for knob in getattr(policy_class, "knobs", ())}


def build(policy_class: type[Any], params: Mapping[str, Any]) -> Any:  # noqa: ANN401  any policy
    """Create a policy with ``params``, which fill its nested frozen dataclass ``Params``.

    Args:
        policy_class: Class as returned by `resolve`.
        params: Values by the policy's own names, or by others that its `knobs` translate.

    Raises:
        ConfigError: every unknown, missing, ill-typed or refused parameter, at once.
    """
    data = getattr(policy_class, "Params", None)
    policy = policy_class.__qualname__
    if not (isinstance(data, type) and dataclasses.is_dataclass(data)):
        hint = "it is empty if there are no parameters: see docs/own-policy.md"
        expected = "a class with a nested dataclass Params"
        raise ConfigError([Problem("policy", policy, expected, hint)])
    problems = Problems()
    fields = {field.name: field for field in dataclasses.fields(data) if field.init}
    hints = _hints(data)
    foreign = knobs(policy_class)
    own = _translated(params, foreign, problems)
    for name, value in own.items():
        if name not in fields:
            _unknown(name, value, [*fields, *foreign], problems)
        elif name in params and not _fits(value, hints[name]):
            problems.add(name, value, _spelled(hints[name]))
    for name, field in fields.items():
        if _is_required(field) and name not in own:
            problems.add(name, "", _spelled(hints[name]), "it has no default")
    problems.raise_if_any()
    try:
        return policy_class(data(**own))
    except CarpoolError:
        raise
    except (Exception, SystemExit) as error:  # a policy may be any code
        given = str(dict(params))
        hint = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise ConfigError([Problem(policy, given, "parameters it accepts", hint)]) from error


def _hints(data: type[Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(data)
    except Exception as error:  # an annotation may be any expression
        expected = "a Params whose types exist at run time"
        fix = "import it outside of TYPE_CHECKING"
        is_missing = isinstance(error, NameError)
        hint = f"{error}: {fix}" if is_missing else f"{type(error).__name__}: {error}"
        raise ConfigError([Problem("policy", data.__qualname__, expected, hint)]) from error


def _translated(
    params: Mapping[str, Any], foreign: Mapping[str, Knob], problems: Problems
) -> dict[str, Any]:
    """Return ``params`` by the policy's own names; report parameters given under two names."""
    own = {name: value for name, value in params.items() if name not in foreign}
    given = {name: name for name in own}
    for name, value in params.items():
        knob = foreign.get(name)
        if knob is None:
            continue
        if not knob.parameter:
            problems.add(name, value, knob.expected, knob.note)
            continue
        other = given.setdefault(knob.parameter, name)
        if other != name:
            hint = f"both are the parameter {knob.parameter}"
            problems.add(name, value, f"only one of the two, and {other} is set too", hint)
        try:
            own[knob.parameter] = knob.read(value)
        except (TypeError, ValueError):
            problems.add(name, value, knob.expected)
    return own


def _unknown(name: str, value: object, known: Collection[str], problems: Problems) -> None:
    if known:
        problems.unknown(name, known, value)
    else:
        problems.add(name, value, "nothing", "the policy has no parameters")


def _is_required(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


def _fits(value: object, hint: Any) -> bool:  # noqa: ANN401  a type form, which has no type
    """Return whether a value decoded from JSON matches the type ``hint``."""
    origin = typing.get_origin(hint)
    if hint is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, option) for option in typing.get_args(hint))
    if origin is list:
        (member,) = typing.get_args(hint)
        return isinstance(value, list) and all(_fits(item, member) for item in value)
    if origin is Literal:
        return any(value == word and type(value) is type(word) for word in typing.get_args(hint))
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    return isinstance(value, origin or hint)


def _spelled(hint: Any) -> str:  # noqa: ANN401  a type form, which has no type
    return hint.__name__ if isinstance(hint, type) else str(hint).removeprefix("typing.")
