"""A share of a function's calls answered by others: how they are divided, and what callers see."""

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


def test_calls_are_dealt_in_the_shares() -> None:
    """Of any stretch of calls, each function has its share to within a call or two."""
    division = Division("fn", {"a": 10.0, "b": 2.5})
    chosen = [division.next(None) for _ in range(2000)]
    assert (200, 50) == (chosen.count("a"), chosen.count("b"))
    for start in range(0, 1900, 7):
        stretch = chosen[start : start + 100]
        assert abs(stretch.count("a") - 10) <= 2
        assert abs(stretch.count("b") - 2.5) <= 2


def test_all_calls_or_none() -> None:
    """A share of 100 leaves the function nothing, and one of 0 the canary."""
    whole, none = Division("fn", {"a": 100.0}), Division("fn", {"a": 0.0})
    keys = [None, *(str(number).encode() for number in range(200))]
    assert {"a"} == {whole.next(key) for key in keys}
    assert {"fn"} == {none.next(key) for key in keys}


def test_a_known_caller_stays_with_its_function() -> None:
    """As long as shares stay; a share that grows keeps its callers, and keys are spread evenly."""
    keys = [f"user-{number}".encode() for number in range(4000)]
    small, large = Division("fn", {"a": 10.0}), Division("fn", {"a": 25.0})
    of_small = {key for key in keys if small.next(key) == "a"}
    of_large = {key for key in keys if large.next(key) == "a"}
    assert of_small == {key for key in reversed(keys) if small.next(key) == "a"}
    assert of_small < of_large
    assert abs(len(of_small) - 400) < 100  # five standard deviations
    other = {key for key in keys if Division("other", {"a": 10.0}).next(key) == "a"}
    assert other != of_small  # not the same callers have everything new


def test_the_label() -> None:
    """Functions with their percent, together at most 100."""

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
    """Deploy the function again."""
    answer = await rig.call(
        "PUT", "/system/functions", {"service": "fn", "image": IMAGE, **document}
    )
    assert (202, b"") == (answer.status, answer.body)


async def answering(rig: Rig, count: int, **key: str) -> list[str]:
    """Which functions answer so many calls, as each answer says; all answer."""
    headers = list(key.items())
    answers = [await rig.call("GET", "/function/fn", headers=headers) for _ in range(count)]
    assert {200} == {answer.status for answer in answers}
    for answer in answers:
        assert version(answer) == json.loads(answer.body)["env"]["OPENFAAS_NAME"]
    return [version(answer) for answer in answers]


def version(answer: Response) -> str:
    """The function that an answer says it is of."""
    return (answer.header(b"x-carpool-function") or b"").decode()


@contextmanager
def logged(name: str) -> Iterator[list[str]]:
    """What a logger says meanwhile."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger(name).addHandler(handler)
    try:
        yield lines
    finally:
        logging.getLogger(name).removeHandler(handler)


def counted(rig: Rig, name: str) -> Counter[int]:
    """How often a function answered, by status."""
    answers: Counter[int] = rig.function(name).answers
    return answers


@story()
async def test_a_share_of_the_calls(rig: Rig) -> None:
    """Ten of a hundred calls are the canary's; each answer says whose it is, and each counts."""
    await divided(rig, "new=10%")
    assert 10 == (await answering(rig, 100)).count("new")
    assert ({200: 90}, {200: 10}) == (counted(rig, "fn"), counted(rig, "new"))
    assert (90, 10) == (rig.function("fn").invocations, rig.function("new").invocations)
    direct = await rig.call("GET", "/function/new")
    assert (200, "") == (direct.status, version(direct))  # not one of several


@pytest.mark.slow
@story()
async def test_shares_change_without_a_restart(rig: Rig) -> None:
    """A deployment with other shares alone replaces no replica, and the rest of it does."""
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
async def test_callers_who_are_known(rig: Rig) -> None:
    """The header, or the cookie of its name, decides which function a caller always gets."""
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
async def test_a_canary_that_is_gone(rig: Rig) -> None:
    """The function answers itself, and a metric counts it, until there is one of that name."""
    await rig.deploy("fn", labels={LABEL: "new=50%"})
    assert {"fn"} == set(await answering(rig, 10))
    metrics = (await rig.call("GET", "/metrics")).body.decode()
    assert f'{FALLBACKS}"unknown"}} 5.0' in metrics
    await rig.deploy("new")
    assert 5 == (await answering(rig, 10)).count("new")


@pytest.mark.slow
@story()
async def test_a_canary_that_is_scaled_to_zero(rig: Rig) -> None:
    """Its first call starts it, and waits for nothing: the function answers until it is ready."""
    await divided(rig, "new=100%", labels={"com.carpool.scale.min": "0"}, ready=False)
    assert 0 == rig.function("new").replicas
    assert ["fn"] == await answering(rig, 1)
    await rig.ready("new")
    assert ["new"] * 3 == await answering(rig, 3)


@pytest.mark.slow
@story()
async def test_a_canary_that_does_not_start(rig: Rig) -> None:
    """The function answers, and the log says why the canary does not."""
    await divided(rig, "new=100%", envVars={"refuse": "1"}, ready=False)
    await wait_until_async(lambda: rig.function("new").replica_set.failing, what="it keeps failing")
    with logged("faas_stack.provider.canaries") as lines:
        assert {"fn"} == set(await answering(rig, 5))
        await wait_until_async(lambda: len(lines) == 2, what="a second line")
    metrics = (await rig.call("GET", "/metrics")).body.decode()
    assert f'{FALLBACKS}"not ready"}} 5.0' in metrics
    assert "canary new of fn does not answer, fn does: it is starting" == lines[0]
    assert "function 'new' keeps failing to start" in lines[1]


@pytest.mark.slow
@story()
async def test_a_canary_that_refuses(rig: Rig) -> None:
    """What no replica of it has begun with, the function answers; its own failures stay its own."""
    await divided(rig, "new=100%")
    refused = await rig.call("GET", "/function/fn/refuse?times=1")
    assert (200, "fn") == (refused.status, version(refused))
    await rig.ready("new")
    broken = await rig.call("GET", "/function/fn/break")
    assert (502, "new") == (broken.status, version(broken))


@pytest.mark.slow
@story()
async def test_what_asks_for_one_function(rig: Rig) -> None:
    """Probes and metrics are of the function whose name they give."""
    await divided(rig, "new=100%")
    for path in ("/_/ready", "/metrics", "/metrics?x=y"):
        assert "fn" == version(await rig.call("GET", f"/function/fn{path}")), path
    assert "new" == version(await rig.call("GET", "/function/fn/metrics/own"))


@story(ProcessStage())
async def test_refused_deployments(rig: Rig) -> None:
    """A function is not its own canary, and canaries have none: no circles."""
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
