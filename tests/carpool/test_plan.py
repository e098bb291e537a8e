"""The plan: valid or refused with every reason, and unchanged by conversion to JSON and back."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.errors import ConfigError, Problem
from carpool.plan import InstanceClass, Plan, Predicted, Quantiles, Route
from tests.carpool.plans import PLAN, edited


def _problems(text: str | bytes) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        Plan.from_json(text)
    return list(caught.value.problems)


def test_plan_round_trips() -> None:
    """A plan written and read again is equal, from text and from bytes."""
    assert PLAN == Plan.from_json(PLAN.to_json())
    assert PLAN == Plan.from_json(PLAN.to_json().encode())


def test_the_form_has_every_documented_key() -> None:
    """The JSON form has exactly the documented keys, even for unknown values."""
    bare = json.loads(Plan("f", 1, "fixed", (InstanceClass("a", 1, 1, 1),)).to_json())
    keys = "function version policy classes routes prewarm_s keep_alive_s predicted explain"
    assert [*keys.split(), "variants", "term", "last_only"] == list(bare)
    keys = "name cpu batch_size replicas variant gpu memory_mb exec_s rate_low rate_high"
    assert set(keys.split()) == set(bare["classes"][0])
    keys = "latency_s cost_per_request mean_batch slo_miss_ratio"
    assert set(keys.split()) == set(bare["predicted"])
    assert {"app", "weights", "max_wait_s", "accuracy"} == set(PLAN.to_dict()["routes"][0])


def test_optional_keys_have_defaults() -> None:
    """Only function, version, policy, classes and routes are required; the rest has defaults."""
    text = '{"function": "f", "version": 0, "policy": "p", "classes": [], "routes": []}'
    assert Plan("f", 0, "p") == Plan.from_json(text)


def test_a_later_term_makes_a_plan_newer() -> None:
    """Plans are ordered by term, then by version; an old plan without a term has none."""
    ages = [Plan("f", 9, "p"), Plan("f", 1, "p", term=4), Plan("f", 2, "p", term=4)]
    assert [(0, 9), (4, 1), (4, 2)] == [plan.full_version for plan in ages]
    assert ages == sorted(ages, key=lambda plan: plan.full_version)


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
def test_invalid_json_is_refused(text: str | bytes, detail: str) -> None:
    """Text that is not strict JSON or not an object is refused with its position or the reason."""
    assert detail in " ".join(str(problem) for problem in _problems(text))


def test_a_policy_cannot_make_an_invalid_plan() -> None:
    """A plan made in code is validated like any other, including against NaN."""
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
def test_every_valid_plan_round_trips(plan: Plan) -> None:
    """Every valid plan is equal after being written and read."""
    assert plan == Plan.from_json(plan.to_json())


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
_PLACES = ["function", "version", "classes", "routes", "predicted", "explain", "keep_alive_s"]
_PLACES += ["classes/0", "classes/0/rate_low", "classes/0/name", "routes/0", "routes/0/weights"]


@given(st.sampled_from(_PLACES), _JSON)
def test_any_json_value_gives_a_plan_or_config_error(path: str, value: object) -> None:
    """Any JSON value in any place gives a plan or a `ConfigError`."""
    with contextlib.suppress(ConfigError):
        plan = Plan.from_json(json.dumps(edited(path, value)).replace("Infinity", "1"))
        assert plan == Plan.from_json(plan.to_json())
