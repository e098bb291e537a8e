"""The page of the live benchmark: what was asked of it, what came of it, and every number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.machine import commit, machine
from simulator.comparison_table import comparison
from simulator.metrics import measured

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from benchmarks.live_measuring import Model
    from simulator.results import Outcome, Results

__all__ = ["Case", "Found", "markdown"]

_FOLLOW_S = 2.0
_REACTION_S = 10.0  # what is started later has another reason
_MISSED = 0.03
_SHARE = 0.5
_AGREE = 0.15
_COMPARED = (
    "latency mean, ms",
    "p50, ms",
    "p95, ms",
    "p99, ms",
    "mean instances",
    "SLO missed, %",
)


@dataclass(frozen=True, slots=True)
class Case:
    """A setting that is measured.

    Attributes:
        batch: The largest batch.
        about: What is to be expected of it.
    """

    batch: int
    about: str


@dataclass(frozen=True, slots=True)
class Found:
    """What one case has shown.

    Attributes:
        case: Which.
        model: What was measured of the model.
        rates: When which rate of the trace begins.
        real, simulated: What came of each policy.
    """

    case: Case
    model: Model
    rates: Sequence[tuple[int, float]]
    real: Mapping[str, Outcome]
    simulated: Mapping[str, Outcome]

    def numbers(self) -> dict[str, Any]:
        """All metrics."""
        return {
            "live": {policy: measured(outcome) for policy, outcome in self.real.items()},
            "simulated": {policy: measured(outcome) for policy, outcome in self.simulated.items()},
        }


def markdown(found: Sequence[Found], args: argparse.Namespace) -> str:
    """The page."""
    about = machine()
    steps = ", ".join(f"{rate:.0f}/s from {at_s} s" for at_s, rate in found[0].rates)
    where = (
        f"`python -m benchmarks live` at {commit()}, on {about['cores']} cores ({about['cpu']}), "
        "which the load generator, the stack and all instances share; the load before was "
        f"{about['load_before']}. A model on instances of {args.cpu:g} cores, objective "
        f"{args.slo:g} ms. Measured on the stack before: {found[0].model.said}. Trace: {steps}.\n"
    )
    end = "Misses count as agreeing where they lie within 15 % or half a percentage point."
    return "\n".join(["# Live and simulated\n", where, *map(_section, found), end]) + "\n"


def _section(found: Found) -> str:
    columns = {
        f"{policy}, {where}": outcome
        for policy in found.real
        for where, outcome in (
            ("live", found.real[policy]),
            ("simulated", found.simulated[policy]),
        )
    }
    results = {name: measured(outcome) for name, outcome in columns.items()}
    parts = [
        f"## Batches of up to {found.case.batch}\n",
        f"{found.case.about}\n",
        "```",
        comparison(results, columns).rstrip(),
        "```\n",
        "### What was asked\n",
        *_targets(found, results),
        "\n### Live against simulated\n",
        "| policy | | live | simulated | apart | within 15 % |",
        "|---|---|---:|---:|---:|---|",
        *_agreement(found, results),
    ]
    return "\n".join(parts) + "\n"


def _targets(found: Found, results: Mapping[str, Any]) -> list[str]:
    infless, openfaas = results["infless, live"], results["openfaas, live"]
    missed, share = infless["slo_miss_ratio"], infless["cpu_core_s"] / openfaas["cpu_core_s"]
    few, small = _verdict(held=missed <= _MISSED), _verdict(held=share <= _SHARE)
    sums = f"{infless['cpu_core_s']:.0f} of {openfaas['cpu_core_s']:.0f}"
    lines = [
        f"- `infless` misses at most {_MISSED:.0%}: {missed:.2%}. {few}",
        f"- core-seconds of `infless` at most half of `openfaas`: {share:.2f} ({sums}). {small}",
    ]
    for policy, outcome in found.real.items():
        for at_s, _ in found.rates[1::2]:
            begun_s, ready_s = _followed(outcome.tracks[0], at_s)
            lines.append(
                f"- `{policy}`, step up at {at_s} s: instances started after {_after(begun_s)}, "
                f"ready after {_after(ready_s)}. "
                + _verdict(held=begun_s is None or begun_s <= _FOLLOW_S)
            )
    return lines


def _followed(track: Results, step_s: float) -> tuple[float | None, float | None]:
    """When the first more were there, and when they were ready, since a step; None: no more."""
    before = [m for m in track.moments if m.at_s <= step_s]
    after = [m for m in track.moments if step_s < m.at_s <= step_s + _REACTION_S]
    there, ready = before[-1].ready + before[-1].loading, before[-1].ready
    begun_s = next((m.at_s - step_s for m in after if m.ready + m.loading > there), None)
    ready_s = next((m.at_s - step_s for m in after if m.ready > ready), None)
    return begun_s, ready_s


def _after(seconds: float | None) -> str:
    return "none was needed" if seconds is None else f"{seconds:.2f} s"


def _agreement(found: Found, results: Mapping[str, Any]) -> list[str]:
    lines = []
    for policy in found.real:
        live, simulated = (
            _compared(results[f"{policy}, {where}"], outcome.tracks[0])
            for where, outcome in (
                ("live", found.real[policy]),
                ("simulated", found.simulated[policy]),
            )
        )
        for name in _COMPARED:
            one, other = live[name], simulated[name]
            apart = abs(one - other) / other if other else float(one > 0)
            near = apart <= _AGREE or ("%" in name and abs(one - other) <= 0.5)  # noqa: PLR2004
            lines.append(
                f"| {policy} | {name} | {one:.4g} | {other:.4g} | {apart:.0%} "
                f"| {'yes' if near else '**no**'} |"
            )
    return lines


def _compared(result: Mapping[str, Any], track: Results) -> dict[str, float]:
    latency = result["latency_ms"]
    spans = [m.at_s - n.at_s for n, m in zip(track.moments, track.moments[1:], strict=False)]
    there = [m.ready + m.loading for m in track.moments[1:]]
    mean = sum(s * n for s, n in zip(spans, there, strict=True)) / sum(spans)
    values = (
        *(latency[name] or 0.0 for name in ("mean", "p50", "p95", "p99")),
        mean,
        100 * (result["slo_miss_ratio"] or 0.0),
    )
    return dict(zip(_COMPARED, values, strict=True))


def _verdict(*, held: bool) -> str:
    return "Reached." if held else "**Not reached.**"
