"""Checks of the order of times: window < objective <= exec_timeout <= the gateway's timeout."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING

from carpool import durations
from carpool.errors import ConfigError, Problem
from faas_stack.doctor.context import GATEWAY_S, duration_s
from sidecar.core.objective_check import slower_than
from sidecar.core.request import Request
from sidecar.policies.choice import build_policy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faas_stack.doctor.context import Case, FunctionContext

__all__ = ["cut_off", "gateway_gives_up", "gateway_order", "late_by_waiting", "watchdog_hangs_up"]
__all__ += ["too_slow", "unread_times"]

_TIMES = ("exec_timeout", "read_timeout", "write_timeout", "healthcheck_interval")
_GRACE_S = 10.0  # time that our provider gives an instance to stop; Kubernetes gives 30 s


def late_by_waiting(context: FunctionContext) -> Iterator[Problem]:
    """A batch policy's window is shorter than every objective."""
    wait_s = _window_s(context)
    for name, slo_s in context.objectives.items():
        if math.isfinite(wait_s) and 0 < slo_s <= wait_s:
            expected = f"a window shorter than {name}, which is {durations.format(slo_s)}"
            policy = context.settings.batch_policy if context.settings else ""
            fix = f"set com.carpool.batch.wait below it, or choose another policy than {policy!r}"
            where = context.label("com.carpool.batch.params")
            yield Problem(where, durations.format(wait_s), expected, fix)


def _window_s(context: FunctionContext) -> float:
    """Return how long the policy lets a request wait for others."""
    if context.settings is None or ":" in context.settings.batch_policy:
        return 0.0  # the policy can be imported only beside the function
    with suppress(ConfigError):
        return build_policy(context.settings).depart(Request(1, "", 0.0))
    return 0.0


def cut_off(context: FunctionContext) -> Iterator[Problem]:
    """No objective is longer than ``exec_timeout``."""
    for name, slo_s in context.objectives.items():
        if slo_s > context.exec_timeout_s:
            slo, limit = durations.format(slo_s), durations.format(context.exec_timeout_s)
            expected = f"at least {name}, which is {slo}"
            fix = (
                f"set exec_timeout to {slo} or more: a batch that is still in time would be aborted"
            )
            yield Problem(context.env("exec_timeout"), limit, expected, fix)


def too_slow(case: Case) -> Iterator[Problem]:
    """No function behind ``--gateway`` takes longer for a request than its longest objective."""
    for context in case.contexts:
        single_s = case.around.exceeding_s.get(context.function.name, 0.0)
        objectives = context.objectives
        name = max(objectives, key=objectives.__getitem__, default="")
        if name and single_s > objectives[name]:
            setting = context.label(name.partition("[")[0])
            yield slower_than(setting, objectives[name], single_s)


def watchdog_hangs_up(context: FunctionContext) -> Iterator[Problem]:
    """of-watchdog's ``write_timeout`` is not shorter than ``exec_timeout``."""
    text = context.function.environment.get("write_timeout", "")
    write_s = duration_s(text) if text else None
    if write_s is not None and write_s < context.exec_timeout_s < math.inf:
        limit = durations.format(context.exec_timeout_s)
        expected = f"at least exec_timeout, which is {limit}"
        fix = "remove it: the sidecar sets it; this value makes the watchdog close the connection"
        yield Problem(context.env("write_timeout"), text, expected, fix)


def unread_times(context: FunctionContext) -> Iterator[Problem]:
    """The watchdog can parse its times, and ``healthcheck_interval`` is shorter than a shutdown."""
    for name in _TIMES:
        text = context.function.environment.get(name, "")
        found_s = duration_s(text) if text else None
        if text and (found_s is None or found_s <= 0):
            fix = "the watchdog uses its default for what it cannot parse; 0 is no limit"
            yield Problem(context.env(name), text, "a duration above zero such as 30s", fix)
        elif name == "healthcheck_interval" and found_s is not None and found_s >= _GRACE_S:
            expected = f"less than the {durations.format(_GRACE_S)} that an instance gets to stop"
            fix = "remove it: the sidecar sets 1s; the watchdog takes that long to stop"
            yield Problem(context.env(name), text, expected, fix)


def gateway_gives_up(case: Case) -> Iterator[Problem]:
    """No ``exec_timeout`` is longer than the gateway's ``upstream_timeout``."""
    upstream_s = case.around.upstream_timeout_s
    if upstream_s is None:
        return
    for context in case.contexts:
        if context.exec_timeout_s > upstream_s:
            endless = context.exec_timeout_s == math.inf
            limit = "0s" if endless else durations.format(context.exec_timeout_s)
            expected = f"at most the gateway's timeout, which is {durations.format(upstream_s)}"
            fix = f"lower it, or set the gateway's upstream_timeout to {limit} or more"
            fix = f"0 is no limit: set {durations.format(upstream_s)} or less" if endless else fix
            yield Problem(context.env("exec_timeout"), limit, expected, fix)


def gateway_order(case: Case) -> Iterator[Problem]:
    """The gateway's ``upstream_timeout`` is shorter than its ``read_`` and ``write_timeout``."""
    gateway = case.around.gateway
    if gateway is None:
        return
    timeouts_s = {name: _gateway_s(gateway, name) for name in ("upstream", "read", "write")}
    for name in ("read", "write"):
        if timeouts_s["upstream"] >= timeouts_s[name]:
            upstream, other = map(durations.format, (timeouts_s["upstream"], timeouts_s[name]))
            expected = f"less than {name}_timeout, which is {other}"
            fix = f"set {name}_timeout to 5s more; otherwise callers see a reset instead of a 502"
            where = f"{case.around.gateway_name}.upstream_timeout"
            yield Problem(where, upstream, expected, fix)


def _gateway_s(gateway: dict[str, str], name: str) -> float:
    found_s = duration_s(gateway.get(f"{name}_timeout", ""))
    return GATEWAY_S if found_s is None else found_s
