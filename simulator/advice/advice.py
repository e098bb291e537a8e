"""Render the advice as text, table, JSON, stack-file labels and a scenario file."""

from __future__ import annotations

import dataclasses
import json
import math
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from carpool import durations, plugins
from carpool.app_setting import App
from carpool.settings import FunctionSettings, rows
from simulator.advice.settings import params
from simulator.confidence_intervals import UNKNOWN, Estimate
from simulator.reports.comparison_table import aligned, number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from simulator.advice.question import Question
    from simulator.advice.trace_parts import Part
    from simulator.advice.verdict import Verdict

__all__ = ["Advice"]

_LINE = 100
_DIFFERENCE = 0.005


@dataclass(frozen=True)
class Advice:
    """The result of `carpool advise`.

    Attributes:
        question: The trace, model, objective and prices that were asked about.
        policies: Parameters of all simulated policies, by name.
        verdicts: Results of each policy.
        chosen: The recommended policy; None if every policy failed.
        beside: Each policy's cost relative to the chosen one's on the same parts.
        unfinished: Policies that ran out of time.
        parts: The parts that the chosen policy was simulated on.
        budget_s: Time budget.
    """

    question: Question
    policies: Mapping[str, Mapping[str, Any]]
    verdicts: Mapping[str, Verdict]
    chosen: Verdict | None
    beside: Mapping[str, Estimate]
    unfinished: Sequence[str]
    parts: Sequence[Part]
    budget_s: float

    @property
    def name(self) -> str:
        """Value of the policy label: the policy's own name if its settings are the defaults."""
        assert self.chosen is not None  # noqa: S101  asked for only where there is one
        entry = self.policies[self.chosen.policy]
        params_class = getattr(plugins.resolve("scale", entry["policy"]), "Params", None)
        usual = not params(entry) or (
            params_class is not None and params_class(**params(entry)) == params_class()
        )
        return str(entry["policy"]) if usual else self.chosen.policy

    @property
    def settings(self) -> FunctionSettings:
        """Settings of the function."""
        function = self.question.function
        (app,) = function.apps
        apps = (App(app.name, app.slo_s, app.accuracy),) if app.accuracy else ()
        return FunctionSettings(
            slo_s=function.slo_s,
            percentile=function.percentile,
            batch_max=function.max_batch,
            scale_policy=self.name,
            scale_min=0,
            apps=apps,
        )

    def labels(self, *, annotations: bool = False) -> dict[str, str]:
        """Return the labels that differ from the defaults, or the annotations among them."""
        settings = self.settings
        return {
            row.label: row.value_type.write(value)
            for row in rows()
            if (value := getattr(settings, row.field)) != row.default
            if row.annotation_only == annotations
        }

    def stack(self) -> str:
        """Return the function's lines for a stack file."""
        texts = {"labels": self.labels(), "annotations": self.labels(annotations=True)}
        given = {key: value for key, value in texts.items() if value}
        return str(yaml.safe_dump(given, sort_keys=False, width=math.inf))

    def scenario(self) -> str:
        """Return a scenario file for ``carpool simulate``, ``compare --live`` and the scaler."""
        function, prices = self.question.function, self.question.prices
        (app,) = function.apps
        chosen = {self.name: dict(self.policies[self.chosen.policy])} if self.chosen else {}
        document = {
            "prices": {k: v for k, v in dataclasses.asdict(prices).items() if v},
            "models": {function.model_name: dict(self.question.model)},
            "functions": [
                {
                    "name": function.name,
                    "model": function.model_name,
                    "slo_ms": 1000 * function.slo_s,
                    "percentile": function.percentile,
                    "max_batch": function.max_batch,
                    "apps": [
                        {
                            "name": app.name,
                            "accuracy": app.accuracy,
                            "arrivals": {
                                "trace": str(self.question.trace_path.resolve()),
                                "scale": self.question.scale,
                            },
                        }
                    ],
                }
            ],
            "policies": chosen,
            "horizon_s": self.question.trace.end_s,
        }
        return str(yaml.safe_dump(document, sort_keys=False))

    def text(self) -> str:
        """Return the whole advice as text, ending with the labels."""
        sections = [self._asked(), _filled(self._said()), self._table()]
        sections += [_filled(note) for note in self.notes()]
        if self.chosen:
            sections.append(f"In the stack file, under the function:\n\n{_indented(self.stack())}")
        return "\n\n".join(section.rstrip("\n") for section in sections) + "\n"

    def as_dict(self) -> dict[str, Any]:
        """Return the advice for JSON, with null in place of NaN and infinity."""
        question, function = self.question, self.question.function
        advice = None
        if self.chosen:
            entry = self.policies[self.chosen.policy]
            advice = {
                "policy": entry["policy"],
                "params": params(entry),
                "meets_objective": self.chosen.meets,
                "certain": self.chosen.surely,
                "labels": self.labels(),
                "annotations": self.labels(annotations=True),
            }
        return {
            "trace": {
                "file": str(question.trace_path),
                "length_s": question.trace.end_s,
                "mean_rps": question.trace.mean_rate,
                "peak_rps": max(question.trace.rates_rps),
            },
            "model": function.model_name,
            "slo_ms": 1000 * function.slo_s,
            "percentile": function.percentile,
            "prices": {k: v for k, v in dataclasses.asdict(question.prices).items() if v},
            "simulated": {
                "parts": len(self.parts),
                "part_s": self.parts[0].length_s if self.parts else 0.0,
                "budget_s": self.budget_s,
            },
            "advice": advice,
            "policies": [self._row(each) for each in self._sorted()],
            "unfinished": list(self.unfinished),
            "notes": self.notes(),
            "text": self._said(),
        }

    def notes(self) -> list[str]:
        """Return what limits the advice and what failed, as sentences."""
        sentences = list(self.question.notes)
        failed = [each for each in self.verdicts.values() if each.failure]
        sentences += [f"{each.policy} failed: {each.failure}" for each in failed]
        verdicts = self.verdicts.values()
        sentences += [f"{each.policy} {each.unplaced}" for each in verdicts if each.unplaced]
        if self.unfinished:
            names = ", ".join(self.unfinished)
            sentences.append(
                f"Not finished within its share of {durations.format(self.budget_s)}: {names}."
            )
        if any(part.moved for part in self.parts):
            sentences.append(
                "Parts without requests were replaced by parts with requests, so an average hour "
                "costs less."
            )
        if self.chosen and self.chosen.parts == 1:
            sentences.append(
                "A single part gives no intervals; use more --parts or a longer --budget."
            )
        if self.chosen and self.name != self.policies[self.chosen.policy]["policy"]:
            entry = json.dumps({self.name: self.policies[self.chosen.policy]})
            sentences.append(f"The scaler's scenario needs, under policies: {entry}")
        return sentences

    def _asked(self) -> str:
        question, function, trace = self.question, self.question.function, self.question.trace
        percent = f"{100 * function.percentile:g} %"
        return _filled(
            f"{question.trace_path.name}: {_length(trace.end_s)}, {number(trace.mean_rate)} "
            f"requests a second on average, {number(max(trace.rates_rps))} at peak. Model "
            f"{function.model_name}, {percent} within {durations.format(function.slo_s)}, billing "
            f"{question.prices.billing}."
        )

    def _said(self) -> str:
        chosen = self.chosen
        if chosen is None:
            return "Every policy failed."
        count, length_s = len(self.parts), self.parts[0].length_s
        share = min(1.0, count * length_s / self.question.trace.end_s)
        sentences = [self._use(chosen), self._misses(chosen), *self._next(chosen)]
        parts = "part" if count == 1 else "parts"
        sentences.append(
            f"Simulations cover {count} {parts} of {_length(length_s)}, {share:.0%} of the trace"
            + ("; intervals have a confidence of 95 %." if count > 1 else ".")
        )
        return " ".join(sentences)

    def _use(self, chosen: Verdict) -> str:
        given = params(self.policies[chosen.policy])
        settings = ", ".join(f"{key} {value}" for key, value in given.items())
        paid = f"It would cost {_shown(chosen.cost_per_hour, number)} an hour"
        if not math.isnan(chosen.over_bound.value):
            paid += f", {number(chosen.over_bound.value)} times the lower bound"
        policy = self.policies[chosen.policy]["policy"]
        return f"Use {policy}{f' with {settings}' if settings else ''}. {paid}."

    def _misses(self, chosen: Verdict) -> str:
        missed = f"{_shown(chosen.missed, _percent)} of requests would miss the objective"
        allowed = f"{_percent(chosen.allowed)} may"
        if not chosen.meets:
            return f"No policy meets the objective: with this one {missed}, where {allowed}."
        if chosen.surely or math.isnan(chosen.missed.half):
            return f"{missed}; {allowed}."
        return f"{missed}; {allowed}, so this is not certain."

    def _next(self, chosen: Verdict) -> list[str]:
        """Return sentences on the other policies that meet the objective."""
        own = self.policies[chosen.policy]["policy"]
        others = [e for e in self._sorted() if self.policies[e.policy]["policy"] != own]
        meeting = [each for each in others if each.meets]
        if not meeting:
            return ["No other policy meets it."] if chosen.meets and others else []
        other = meeting[0]
        beside = self.beside[other.policy]
        more = beside.value - 1
        if not abs(more) > _DIFFERENCE or beside.low <= 1 <= beside.high:
            return [f"The cost of {other.policy} does not differ significantly on these parts."]
        span = _shown(Estimate(abs(more), beside.half), _whole_percent)
        return [f"{other.policy}, the next, costs {span} {'more' if more > 0 else 'less'}."]

    def _table(self) -> str:
        heads = ["policy", "cost an hour", "relative", "per 1000", "over bound", "missed", "meets"]
        return aligned([[*heads, "parts"], *(self._line(each) for each in self._sorted())])

    def _line(self, each: Verdict) -> list[str]:
        if each.failure:
            return [each.policy, "failed", "", "", "", "", "no", str(each.parts)]
        return [
            each.policy,
            _with_half(each.cost_per_hour, number),
            _with_half(self.beside[each.policy], "{:.2f}".format),
            _alone(each.cost_per_1k, number),
            _alone(each.over_bound, "{:.2f}".format),
            _with_half(each.missed, _percent),
            "yes" if each.surely else "likely" if each.meets else "no",
            str(each.parts),
        ]

    def _row(self, each: Verdict) -> dict[str, Any]:
        return {
            "policy": each.policy,
            "params": params(self.policies[each.policy]),
            "parts": each.parts,
            "cost_per_hour": _interval(each.cost_per_hour),
            "cost_per_1k": _interval(each.cost_per_1k),
            "cost_over_bound": _interval(each.over_bound),
            "cost_beside_advice": _interval(
                UNKNOWN if each.failure else self.beside.get(each.policy, UNKNOWN)
            ),
            "missed": _interval(each.missed),
            "meets_objective": each.meets,
            "certain": each.surely,
            "failure": each.failure or None,
        }

    def _sorted(self) -> list[Verdict]:
        """Return the chosen policy, then those that meet the objective by cost, then the rest."""

        def place(each: Verdict) -> tuple[bool, bool, bool, float]:
            if each.failure:
                return True, True, True, 0.0
            cost = each.cost_per_hour.value if each.meets else each.missed.value
            return each is not self.chosen, False, not each.meets, cost

        return sorted(self.verdicts.values(), key=place)


def _shown(estimate: Estimate, form: Callable[[float], str]) -> str:
    if math.isnan(estimate.value):
        return "-"
    if math.isnan(estimate.half):
        return form(estimate.value)
    return f"{form(estimate.value)} ({form(estimate.low)} to {form(estimate.high)})"


def _with_half(estimate: Estimate, form: Callable[[float], str]) -> str:
    value = _alone(estimate, form)
    return value if math.isnan(estimate.half) else f"{value} ± {form(estimate.half)}"


def _alone(estimate: Estimate, form: Callable[[float], str]) -> str:
    return "-" if math.isnan(estimate.value) else form(estimate.value)


def _interval(estimate: Estimate) -> dict[str, float | None]:
    values = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _whole_percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _length(seconds: float) -> str:
    return durations.format(round(seconds))


def _filled(text: str) -> str:
    return textwrap.fill(text, _LINE)


def _indented(text: str) -> str:
    return textwrap.indent(text, "    ")
