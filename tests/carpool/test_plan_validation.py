"""Validation of plans: every fault is reported with its path, and all of them at once."""

from __future__ import annotations

from typing import Any

import pytest

from carpool import plan_validation
from carpool.errors import ConfigError, Problem
from tests.carpool.plans import PLAN, edited

FORM: dict[str, Any] = PLAN.to_dict()


def _problems(data: object) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        plan_validation.check(data)
    return list(caught.value.problems)


def test_valid_form_is_returned_unchanged() -> None:
    """A valid form is returned unchanged."""
    assert PLAN.to_dict() == plan_validation.check(PLAN.to_dict())


@pytest.mark.parametrize(
    ("path", "value", "name", "detail"),
    [
        ("function", "", "function", "a name"),
        ("function", "Classify", "function", "a-z"),
        ("function", 5, "function", "a name"),
        ("version", -1, "version", "at least 0"),
        ("version", 1.5, "version", "whole number"),
        ("version", True, "version", "whole number"),
        ("policy", ..., "policy", "missing"),
        ("routes", {}, "routes", "a list"),
        ("routes/0", 3, "routes[0]", "an object"),
        ("classes/0/cpu", -1, "classes[0].cpu", "above 0"),
        ("classes/0/cpu", "1", "classes[0].cpu", "a number"),
        ("classes/0/cpu", 10**400, "classes[0].cpu", "a number"),
        ("classes/0/gpu", 101, "classes[0].gpu", "0 to 100"),
        ("classes/0/batch_size", 0, "classes[0].batch_size", "at least 1"),
        ("classes/0/replicas", None, "classes[0].replicas", "whole number"),
        ("classes/0/exec_s", 0, "classes[0].exec_s", "above 0"),
        ("classes/0/cpus", 2, "classes[0].cpus", "did you mean 'cpu'?"),
        ("classes/0/rate_low", 50, "classes[0].rate_low", "at most rate_high, which is 40"),
        ("routes/0/weights", {}, "routes[0].weights", "add up to 1"),
        ("routes/0/weights", [], "routes[0].weights", "an object"),
        ("routes/0/weights/gpu", 0.7, "routes[0].weights", "add up to 1"),
        ("routes/0/weights/gpu", -0.7, "routes[0].weights.gpu", "0 to 1"),
        ("routes/1/weights", {"gpus": 1}, "routes[1].weights.gpus", "did you mean 'gpu'?"),
        ("routes/1/app", "web", "routes[1].app", "another name than routes[0]"),
        ("routes/0/max_wait_s", -0.1, "routes[0].max_wait_s", "at least 0"),
        ("prewarm_s", None, "prewarm_s", "a number"),
        ("predicted", None, "predicted", "an object"),
        ("predicted/slo_miss_ratio", 1.1, "predicted.slo_miss_ratio", "0 to 1"),
        ("predicted/latency_s/p99", -1, "predicted.latency_s.p99", "at least 0"),
        ("predicted/latency_s/p999", 1, "predicted.latency_s.p999", "p99"),
        ("explain", "why", "explain", "a list"),
        ("explain/0", 1, "explain[0]", "text"),
        ("clases", [], "clases", "did you mean 'classes'?"),
        ("routes/0/accuracy", 1.5, "routes[0].accuracy", "0 to 1"),
        ("variants/0/latency_s", 0, "variants[0].latency_s", "above 0"),
    ],
)
def test_each_fault_gives_one_problem_with_its_path(
    path: str, value: object, name: str, detail: str
) -> None:
    """Each fault gives exactly one problem, with its path and what was expected."""
    (problem,) = _problems(edited(path, value))
    assert name == problem.name
    assert detail in str(problem)


def test_duplicate_class_names_are_refused() -> None:
    """Two classes with the same name are refused, as each is a separate deployment."""
    data = {**FORM, "classes": [FORM["classes"][0]] * 2, "routes": []}
    (problem,) = _problems(data)
    assert ("classes[1].name", "small") == (problem.name, problem.value)
    assert "another name than classes[0]" == problem.expected


def test_all_problems_are_reported_at_once() -> None:
    """All problems of a plan are in one error."""
    data = {**FORM, "version": -1, "extra": 1, "policy": ""}
    data["classes"] = [{**FORM["classes"][0], "cpu": 0, "variant": 3}]
    names = {problem.name for problem in _problems(data)}
    expected = {"version", "extra", "policy", "classes[0].cpu", "classes[0].variant"}
    assert expected | {"routes[0].weights.gpu", "routes[1].weights.gpu"} == names
