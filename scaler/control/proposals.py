"""Asks a policy for proposals, and collects its errors by function.

A policy may be any code. Errors that it raises, and invalid proposals, are described in a sentence
and never raised; its proposals for other functions still count.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from carpool.plan import Predicted
from carpool.policy_errors import raised
from carpool.scaling import PerFunctionPolicy, Proposal, Size
from carpool.variants.variant_set import VariantSet, model_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from carpool.latency import LatencyModel
    from carpool.scaling import ClusterView, FunctionLoad, ScalePolicy

__all__ = ["proposed"]

_MOST = 100_000  # instances of a size; ten times as many as 2000 servers hold


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_time(value: object) -> bool:
    return isinstance(value, Real) and 0 <= float(value) < math.inf


def _is_wait(value: object) -> bool:
    times = value.values() if isinstance(value, Mapping) else [value]
    return value is None or all(map(_is_time, times))


def _are_shares(value: object) -> bool:
    return isinstance(value, Mapping) and all(map(_is_number, value.values()))


def _is_collection(value: object, of: type = object) -> bool:
    if isinstance(value, str) or not isinstance(value, Collection):
        return False
    return all(isinstance(each, of) for each in value)


# What is accepted for each field of a proposal, in words and as a test of its type.
_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "instances": ("a mapping of Sizes to whole numbers", lambda it: isinstance(it, Mapping)),
    "wait_s": ("seconds of at least 0, a mapping of applications to them, or None", _is_wait),
    "shares": ("a mapping of applications to numbers by Size", lambda it: isinstance(it, Mapping)),
    "explain": ("a list of sentences", lambda it: _is_collection(it, str)),
    "keep_alive_s": ("seconds of at least 0, or None", lambda it: it is None or _is_time(it)),
    "unserved_rps": ("a number of at least 0", _is_number),
    "predicted": ("a Predicted, or None", lambda it: isinstance(it, Predicted | None)),
    "on_offer": ("a list of Sizes", _is_collection),
}


def proposed(
    policy: ScalePolicy, loads: Sequence[FunctionLoad], cluster: ClusterView
) -> tuple[dict[str, Proposal], dict[str, str]]:
    """Return the proposals of a policy, and its errors, each by function.

    Args:
        policy: The policy; asked for each function separately if it plans for one at a time.
        loads: Loads of the functions.
        cluster: The servers; the policy gets a copy.
    """
    answers: dict[str, object] = {}
    faults: dict[str, str] = {}
    for group in [[load] for load in loads] if _looks_at_one(policy) else [loads]:
        try:
            answers.update(_asked(policy, group, cluster))
        except (Exception, SystemExit) as error:  # noqa: BLE001  a policy may be any code
            faults.update({load.name: raised(error) for load in group})
    known = {load.name: load for load in loads}
    proposals = {}
    for name, answer in answers.items():
        try:
            fault = _fault(known.get(name), answer)
        except Exception as error:  # noqa: BLE001  it may contain objects of any class
            fault = raised(error)
        if fault:
            faults[name] = fault
        elif isinstance(answer, Proposal):
            proposals[name] = answer
    return proposals, faults


def _looks_at_one(policy: ScalePolicy) -> bool:
    return getattr(type(policy), "propose", None) is PerFunctionPolicy.propose


def _asked(
    policy: ScalePolicy, loads: Sequence[FunctionLoad], cluster: ClusterView
) -> Mapping[str, object]:
    if isinstance(policy, PerFunctionPolicy) and _looks_at_one(policy):
        return {load.name: policy.propose_one(load) for load in loads if load.sizes}
    answer: object = policy.propose(loads, cluster.copy()) if loads else {}
    if not isinstance(answer, Mapping):
        message = f"propose() returned {answer!r:.60}, not a mapping of functions to Proposals"
        raise TypeError(message)
    return answer


def _fault(load: FunctionLoad | None, answer: object) -> str:
    """Return why this cannot be a plan; empty if it can."""
    if load is None:
        return "it makes a proposal for a function that it was not given"
    if not isinstance(answer, Proposal):
        return f"it proposes {answer!r:.60}, which is not a Proposal"
    return next(_type_faults(answer), "") or next(_faults(load, answer), "")


def _type_faults(proposal: Proposal) -> Iterator[str]:
    """Yield what is wrong with the types of a proposal's fields."""
    for name, (expected, accepts) in _TYPES.items():
        value = getattr(proposal, name)
        if not accepts(value):
            yield f"its {name} is {value!r:.60}, expected {expected}"
    for app, shares in proposal.shares.items():
        if not _are_shares(shares):
            yield f"the shares of {app} are {shares!r:.60}, expected numbers by Size"


def _faults(load: FunctionLoad, proposal: Proposal) -> Iterator[str]:
    for size, count in proposal.instances.items():
        if not _is_count(count):
            yield f"it wants {count!r:.20} instances, expected a whole number"
        elif not 0 <= count <= _MOST:
            yield f"it wants {count} instances, expected 0 to {_MOST}"
        yield from _size_faults(load, size)
    for size in proposal.on_offer:
        yield from _size_faults(load, size)
    for app, shares in proposal.shares.items():
        unknown = [size for size in shares if size not in proposal.instances]
        if unknown:
            given = ", ".join(str(getattr(size, "name", size)) for size in unknown)
            yield f"the shares of {app} name {given}, which is not among its instances"
        elif not shares:
            yield f"the shares of {app} are empty, expected at least one size"
        elif not 0 < sum(shares.values()) < math.inf or min(shares.values()) < 0:
            given = f"{list(shares.values())!r:.60}"
            yield f"the shares of {app} are {given}, expected numbers of at least 0, not all 0"
    if not 0 <= proposal.unserved_rps < math.inf:
        yield f"unserved_rps is {proposal.unserved_rps}, expected a number of at least 0"


def _size_faults(load: FunctionLoad, size: object) -> Iterator[str]:
    if not isinstance(size, Size):
        yield f"it names {size!r:.40}, which is not a Size"
        return
    numbers = {name: getattr(size, name) for name in ("batch", "cpu", "gpu", "exec_s", "rate_rps")}
    for name, value in numbers.items():
        if not _is_number(value):
            yield f"its size has {name} = {value!r:.40}, expected a number"
            return
    model = _model(load, size.variant)
    configuration = (size.batch, size.cpu, size.gpu)
    if model is None or model.predict(*configuration, load.percentile) is None:
        yield (
            f"it names {size.name}, a size that was not offered and that the latency model "
            "does not know"
        )
    elif not all(0 < amount < math.inf for amount in (size.exec_s, size.rate_rps)):
        given = f"exec_s = {size.exec_s}, rate_rps = {size.rate_rps}"
        yield f"its size {size.name} has {given}, expected numbers above 0"


def _model(load: FunctionLoad, variant: str) -> LatencyModel | None:
    model = load.model
    if not variant:
        return model
    return model_of(model, variant) if isinstance(model, VariantSet) and model.of(variant) else None
