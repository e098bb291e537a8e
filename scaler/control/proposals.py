"""Asks a policy for proposals, and collects its errors by function.

A policy may be any code. Errors that it raises, and invalid proposals, are described in a sentence
and never raised; its proposals for other functions still count.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING

from carpool.scaling import PerFunctionPolicy, Proposal, Size
from carpool.variants.variant_set import VariantSet, model_of
from scaler.control.policy_errors import raised

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from carpool.latency import LatencyModel
    from carpool.scaling import ClusterView, FunctionLoad, ScalePolicy

__all__ = ["proposed"]

_MOST = 100_000  # instances of a size; ten times as many as 2000 servers hold


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
        fault = _fault(known.get(name), answer)
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
    return next(_faults(load, answer), "")


def _faults(load: FunctionLoad, proposal: Proposal) -> Iterator[str]:
    for size, count in proposal.instances.items():
        try:
            if not 0 <= operator.index(count) <= _MOST:
                yield f"it wants {count} instances, expected 0 to {_MOST}"
        except TypeError:
            yield f"it wants {count!r:.20} instances, expected a whole number"
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
