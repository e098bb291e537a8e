"""Tests of canaries: how calls are divided between functions, and what callers see."""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from carpool.errors import ConfigError
from carpool.settings import FunctionSettings
from faas_stack.provider.canary import Division
from tests.faas_stack.rig import IMAGE, ProcessStage, story
from tests.waiting import wait_until_async

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

    from carpool.http.client import Response
    from tests.faas_stack.rig import Rig

LABEL = "com.carpool.canary"
FALLBACKS = 'provider_canary_fallbacks_total{canary="new",function_name="fn.openfaas-fn",reason='


# -- how calls are divided ---------------------------------------------------------------------


def test_calls_are_split_by_shares() -> None:
    """In any sequence of calls, each function's share is exact to within two calls."""
    division = Division("fn", {"a": 10.0, "b": 2.5})
    chosen = [division.next(None) for _ in range(2000)]
    assert (200, 50) == (chosen.count("a"), chosen.count("b"))
    for start in range(0, 1900, 7):
        stretch = chosen[start : start + 100]
        assert abs(stretch.count("a") - 10) <= 2
        assert abs(stretch.count("b") - 2.5) <= 2


def test_canary_gets_all_calls_or_none() -> None:
    """A share of 100 gives the canary all calls, and one of 0 none."""
    whole, none = Division("fn", {"a": 100.0}), Division("fn", {"a": 0.0})
    keys = [None, *(str(number).encode() for number in range(200))]
    assert {"a"} == {whole.next(key) for key in keys}
    assert {"fn"} == {none.next(key) for key in keys}


def test_caller_with_key_keeps_its_function() -> None:
    """A caller with a key keeps its function while shares stay, and its canary if the share grows.

    Keys are divided by share, and differently for each function.
    """
    keys = [f"user-{number}".encode() for number in range(4000)]
    small, large = Division("fn", {"a": 10.0}), Division("fn", {"a": 25.0})
    of_small = {key for key in keys if small.next(key) == "a"}
    of_large = {key for key in keys if large.next(key) == "a"}
    assert of_small == {key for key in reversed(keys) if small.next(key) == "a"}
    assert of_small < of_large
    assert abs(len(of_small) - 400) < 100  # five standard deviations
    other = {key for key in keys if Division("other", {"a": 10.0}).next(key) == "a"}
    assert other != of_small  # not the same callers have everything new


def test_label_lists_functions_with_percentages() -> None:
    """The label has functions with percentages of at most 100 together."""

    def read(text: str) -> Any:
        return FunctionSettings.from_labels({LABEL: text}).canary

    assert {"v2": 10.0, "v3": 2.5} == read("v2=10%, v3=2.5")
    assert {} == read("")
    settings = FunctionSettings(canary={"v2": 12.5})
    assert settings == FunctionSettings.from_env(settings.to_env())
    for wrong in ("v2", "v2=", "v2=-1%", "v2=101%", "v2=60%,v3=41%", "v2=1%,v2=2%", "V2=1%", "=5%"):
        with pytest.raises(ConfigError, match="at most 100 together, such as classify-v2=10%"):
            read(wrong)


# -- at the provider ---------------------------------------------------------------------------


async def divided(rig: Rig, shares: str, **canary: Any) -> None:
    """Deploy a function and its canary, ``new``."""
    await rig.deploy("new", **canary)
    await rig.deploy("fn", labels={LABEL: shares})


async def update(rig: Rig, **document: Any) -> None:
    """Update the function."""
    answer = await rig.call(
        "PUT", "/system/functions", {"service": "fn", "image": IMAGE, **document}
    )
    assert (202, b"") == (answer.status, answer.body)


async def answering(rig: Rig, count: int, **key: str) -> list[str]:
    """Return the functions that answered ``count`` calls, all of which succeed."""
    headers = list(key.items())
    answers = [await rig.call("GET", "/function/fn", headers=headers) for _ in range(count)]
    assert {200} == {answer.status for answer in answers}
    for answer in answers:
        assert version(answer) == json.loads(answer.body)["env"]["OPENFAAS_NAME"]
    return [version(answer) for answer in answers]


def version(answer: Response) -> str:
    """Return the function that a response names as its origin."""
    return (answer.header(b"x-carpool-function") or b"").decode()


@contextmanager
def logged(name: str) -> Iterator[list[str]]:
    """Collect the messages of a logger."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger(name).addHandler(handler)
    try:
        yield lines
    finally:
        logging.getLogger(name).removeHandler(handler)


def counted(rig: Rig, name: str) -> Counter[int]:
    """Return the number of a function's responses by status."""
    answers: Counter[int] = rig.function(name).answers
    return answers


@story()
async def test_canary_gets_its_share_of_calls(rig: Rig) -> None:
    """Ten of a hundred calls go to the canary; each response names its function and is counted."""
    await divided(rig, "new=10%")
    assert 10 == (await answering(rig, 100)).count("new")
    assert ({200: 90}, {200: 10}) == (counted(rig, "fn"), counted(rig, "new"))
    assert (90, 10) == (rig.function("fn").invocations, rig.function("new").invocations)
    direct = await rig.call("GET", "/function/new")
    assert (200, "") == (direct.status, version(direct))  # not one of several


@story()
async def test_canary_learns_which_function_was_called(rig: Rig) -> None:
    """A canary gets the name of the function that was called; others get none."""
    await divided(rig, "new=50%")
    found = {}
    for path in ["/function/fn"] * 2 + ["/function/new"]:
        answer = await rig.call("GET", path, headers=[("x-carpool-called", "other")])
        headers = dict(json.loads(answer.body)["headers"])
        found[path, version(answer)] = headers.get("x-carpool-called", "")
    called, direct = "/function/fn", "/function/new"
    assert {(called, "fn"): "", (called, "new"): "fn", (direct, ""): ""} == found


@pytest.mark.slow
@story()
async def test_shares_change_without_a_restart(rig: Rig) -> None:
    """An update of the shares alone replaces no replica, and any other does."""
    await divided(rig, "new=10%")
    before = {each.name for each in rig.instances("fn")}
    await update(rig, labels={LABEL: "new=50%"})
    assert 50 == (await answering(rig, 100)).count("new")
    await update(rig)
    answer = await rig.call("GET", "/function/fn")
    assert (200, "") == (answer.status, version(answer))
    assert before == {each.name for each in rig.instances("fn")}
    assert "carpool_canary" not in json.loads(answer.body)["env"]
    await update(rig, labels={LABEL: "new=50%"}, envVars={"x": "y"})
    await wait_until_async(
        lambda: before.isdisjoint(each.name for each in rig.instances("fn")), what="new replicas"
    )


@pytest.mark.slow
@story()
async def test_header_or_cookie_determines_function(rig: Rig) -> None:
    """The header, or the cookie of the same name, determines the function that a caller gets."""
    await divided(rig, "new=50%")
    users = [f"user-{number}" for number in range(20)]
    of = {user: (await answering(rig, 3, **{"x-carpool-user": user})) for user in users}
    assert all(len(set(names)) == 1 for names in of.values())
    assert {"fn", "new"} == {names[0] for names in of.values()}
    for user in users:
        cookie = f"a=b; X-Carpool-User={user}; c=d"
        assert of[user][:1] == await answering(rig, 1, cookie=cookie)


@pytest.mark.slow
@story()
async def test_calls_of_missing_canary_go_to_function(rig: Rig) -> None:
    """The function answers for a missing canary, and a metric counts these calls."""
    await rig.deploy("fn", labels={LABEL: "new=50%"})
    assert {"fn"} == set(await answering(rig, 10))
    metrics = (await rig.call("GET", "/metrics")).body.decode()
    assert f'{FALLBACKS}"unknown"}} 5.0' in metrics
    await rig.deploy("new")
    assert 5 == (await answering(rig, 10)).count("new")


@pytest.mark.slow
@story()
async def test_first_call_starts_canary_at_zero(rig: Rig) -> None:
    """A canary's first call starts it, and the function answers until the canary is ready."""
    await divided(rig, "new=100%", labels={"com.carpool.scale.min": "0"}, ready=False)
    assert 0 == rig.function("new").replicas
    assert ["fn"] == await answering(rig, 1)
    await rig.ready("new")
    assert ["new"] * 3 == await answering(rig, 3)


@pytest.mark.slow
@story()
async def test_calls_of_canary_that_fails_to_start_go_to_function(rig: Rig) -> None:
    """The function answers for a canary that fails to start, and the log gives the reason."""
    await divided(rig, "new=100%", envVars={"refuse": "1"}, ready=False)
    await wait_until_async(lambda: rig.function("new").replica_set.failing, what="it keeps failing")
    with logged("faas_stack.provider.canaries") as lines:
        assert {"fn"} == set(await answering(rig, 5))
        await wait_until_async(lambda: len(lines) == 2, what="a second line")
    metrics = (await rig.call("GET", "/metrics")).body.decode()
    assert f'{FALLBACKS}"not ready"}} 5.0' in metrics
    assert "canary new does not answer, so fn answers instead: it is starting" == lines[0]
    assert "function 'new' keeps failing to start" in lines[1]


@pytest.mark.slow
@story()
async def test_calls_that_canary_did_not_begin_go_to_function(rig: Rig) -> None:
    """The function answers calls that no canary replica has begun, but not those that failed."""
    await divided(rig, "new=100%")
    refused = await rig.call("GET", "/function/fn/refuse?times=1")
    assert (200, "fn") == (refused.status, version(refused))
    await rig.ready("new")
    broken = await rig.call("GET", "/function/fn/break")
    assert (502, "new") == (broken.status, version(broken))


@pytest.mark.slow
@story()
async def test_probes_and_metrics_ignore_shares(rig: Rig) -> None:
    """Probes and metrics are those of the function in the path."""
    await divided(rig, "new=100%")
    for path in ("/_/ready", "/metrics", "/metrics?x=y"):
        assert "fn" == version(await rig.call("GET", f"/function/fn{path}")), path
    assert "new" == version(await rig.call("GET", "/function/fn/metrics/own"))


@story(ProcessStage())
async def test_circular_and_nested_canaries_are_refused(rig: Rig) -> None:
    """A function cannot be its own canary, and a canary cannot have canaries."""
    await rig.deploy("new")
    await rig.deploy("fn", labels={LABEL: "new=10%"})
    cases = {
        ("own", "own=10%"): "com.carpool.canary = 'own=10%': expected other functions",
        ("third", "fn=5%"): "com.carpool.canary = 'fn': expected a function without canaries",
        ("new", "fn=5%"): "com.carpool.canary = 'fn': expected none, as new is a canary of fn",
    }
    for (name, shares), part in cases.items():
        document = {"service": name, "image": IMAGE, "labels": {LABEL: shares}}
        method = "PUT" if name == "new" else "POST"
        answer = await rig.call(method, "/system/functions", document)
        assert 400 == answer.status, answer.body
        assert part in json.loads(answer.body)["error"]
