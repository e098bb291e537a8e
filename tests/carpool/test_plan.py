"""The plan: valid or refused with every reason, and the same after a journey as JSON."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.errors import ConfigError, Problem
from carpool.plan import InstanceClass, OnOffer, Plan, Predicted, Quantiles, Route

PLAN = Plan(
    function="classify",
    version=7,
    policy="harmony",
    classes=(
        InstanceClass("small", 0.5, 4, 2, "int8", 0.0, 512.0, 0.08, 0.0, 40.0),
        InstanceClass("gpu", 1.0, 32, 1, "", 25.0, 2048.0, 0.05, 120.0, 600.0),
    ),
    routes=(
        Route("web", {"small": 0.25, "gpu": 0.75}, 0.1, 0.9),
        Route("*", {"gpu": 1.0}, 0.02),
    ),
    prewarm_s=30.0,
    keep_alive_s=600.0,
    predicted=Predicted(Quantiles(0.06, 0.11, 0.15), 2.1e-6, 11.5, 0.004),
    explain=("gpu takes web's bulk: 75 % of 320 requests per second",),
    variants=(OnOffer("small", "int8", 0.93, 0.16, 1e-6, 0.4),),
)
FORM: dict[str, Any] = json.loads(PLAN.to_json())


def _problems(text: str | bytes) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        Plan.from_json(text)
    return list(caught.value.problems)


def _edited(path: str, value: object) -> str:
    """The plan's JSON with one value replaced, or removed where ``value`` is ``...``."""
    form = json.loads(PLAN.to_json())
    *parents, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    place = form
    for part in parents:
        place = place[part]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return json.dumps(form)


def test_a_plan_survives_the_journey() -> None:
    """A plan written and read is the same plan, from text and from bytes."""
    assert PLAN == Plan.from_json(PLAN.to_json())
    assert PLAN == Plan.from_json(PLAN.to_json().encode())


def test_the_form_has_every_documented_key() -> None:
    """The JSON form has exactly the documented keys, present even where nothing is known."""
    bare = json.loads(Plan("f", 1, "fixed", (InstanceClass("a", 1, 1, 1),)).to_json())
    keys = (
        "function version policy classes routes prewarm_s keep_alive_s predicted explain variants"
    )
    assert keys.split() == list(bare)
    keys = "name cpu batch_size replicas variant gpu memory_mb exec_s rate_low rate_high"
    assert set(keys.split()) == set(bare["classes"][0])
    keys = "latency_s cost_per_request mean_batch slo_miss_ratio"
    assert set(keys.split()) == set(bare["predicted"])
    assert {"app", "weights", "max_wait_s", "accuracy"} == set(FORM["routes"][0])


def test_what_is_not_known_may_be_left_out() -> None:
    """A plan needs its function, version, policy, classes and routes; the rest has defaults."""
    text = '{"function": "f", "version": 0, "policy": "p", "classes": [], "routes": []}'
    assert Plan("f", 0, "p") == Plan.from_json(text)


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
        ("explain/0", 1, "explain[0]", "a text"),
        ("clases", [], "clases", "did you mean 'classes'?"),
        ("routes/0/accuracy", 1.5, "routes[0].accuracy", "0 to 1"),
        ("variants/0/latency_s", 0, "variants[0].latency_s", "above 0"),
    ],
)
def test_one_fault_is_one_problem_with_its_path(
    path: str, value: object, name: str, detail: str
) -> None:
    """Each fault is reported where it is, with what was expected, and nothing else is."""
    (problem,) = _problems(_edited(path, value))
    assert name == problem.name
    assert detail in str(problem)


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("", "Expecting value"),
        ("[]", "an object"),
        ("{'a': 1}", "double quotes"),
        ('{"function": "f", "function": "g"}', "'function' appears twice"),
        ('{"version": NaN}', "NaN is not a JSON number"),
        ('{"version": -Infinity}', "-Infinity is not a JSON number"),
        ("[" * 100_000, "nested too deeply"),
        (b"\xff\xfe\xfa", "a JSON document"),
    ],
)
def test_what_is_not_json_is_refused(text: str | bytes, detail: str) -> None:
    """Text that is not strict JSON, or no object, is refused with the place or the reason."""
    assert detail in " ".join(str(problem) for problem in _problems(text))


def test_a_class_has_its_name_alone() -> None:
    """Two classes of one name are refused: each is a deployment of its own."""
    form = {**FORM, "classes": [FORM["classes"][0]] * 2, "routes": []}
    (problem,) = _problems(json.dumps(form))
    assert ("classes[1].name", "small") == (problem.name, problem.value)
    assert "another name than classes[0]" == problem.expected


def test_everything_wrong_is_reported_at_once() -> None:
    """All problems of a plan come in one error."""
    form = {**FORM, "version": -1, "extra": 1, "policy": ""}
    form["classes"] = [{**FORM["classes"][0], "cpu": 0, "variant": 3}]
    names = {problem.name for problem in _problems(json.dumps(form))}
    expected = {"version", "extra", "policy", "classes[0].cpu", "classes[0].variant"}
    assert expected | {"routes[0].weights.gpu", "routes[1].weights.gpu"} == names


def test_a_policy_cannot_make_an_invalid_plan() -> None:
    """A plan made in code is held to the same form, NaN included."""
    with pytest.raises(ConfigError, match=r"classes\[0\]\.cpu = 'NaN'"):
        Plan("f", 1, "p", (InstanceClass("a", float("nan"), 1, 1),))
    with pytest.raises(ConfigError, match=r"routes\[0\]\.weights\.b"):
        Plan("f", 1, "p", (InstanceClass("a", 1, 1, 1),), (Route("*", {"b": 1.0}, 0.0),))


_AMOUNTS = st.floats(0, 1e9)
_NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)


@st.composite
def _plans(draw: st.DrawFn) -> Plan:
    names = draw(st.lists(_NAMES, min_size=1, max_size=4, unique=True))
    classes = tuple(
        InstanceClass(
            name,
            cpu=draw(st.floats(0.001, 128)),
            batch_size=draw(st.integers(1, 512)),
            replicas=draw(st.integers(0, 1000)),
            variant=draw(st.text(max_size=5)),
            gpu=draw(st.floats(0, 100)),
            memory_mb=draw(st.none() | st.floats(1, 1e6)),
            exec_s=draw(st.none() | st.floats(1e-6, 100)),
            rate_low=draw(st.floats(0, 10)),
            rate_high=draw(st.none() | st.floats(10, 1e6)),
        )
        for name in names
    )
    shares = draw(st.lists(st.integers(1, 100), min_size=len(names), max_size=len(names)))
    weights = {name: share / sum(shares) for name, share in zip(names, shares, strict=True)}
    apps = draw(st.lists(st.text(min_size=1), max_size=3, unique=True))
    routes = tuple(Route(app, weights, draw(_AMOUNTS)) for app in apps)
    predicted = Predicted(Quantiles(p99=draw(_AMOUNTS)), draw(st.none() | _AMOUNTS))
    explain = tuple(draw(st.lists(st.text(), max_size=2)))
    return Plan("f", draw(st.integers(0)), "p", classes, routes, 0.0, None, predicted, explain)


@given(_plans())
def test_every_plan_survives_the_journey(plan: Plan) -> None:
    """Whatever a policy may plan is read back as it was written."""
    assert plan == Plan.from_json(plan.to_json())


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
_PLACES = ["function", "version", "classes", "routes", "predicted", "explain", "keep_alive_s"]
_PLACES += ["classes/0", "classes/0/rate_low", "classes/0/name", "routes/0", "routes/0/weights"]


@given(st.sampled_from(_PLACES), _JSON)
def test_anything_is_a_plan_or_a_config_error(path: str, value: object) -> None:
    """No JSON, wherever it stands, makes reading fail in a way of its own."""
    with contextlib.suppress(ConfigError):
        plan = Plan.from_json(_edited(path, value).replace("Infinity", "1"))
        assert plan == Plan.from_json(plan.to_json())
