"""Tests that invalid deployments and secrets are refused with the reason and change nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from faas_stack.partition.machine import Capacity
from tests.faas_stack.rig import IMAGE, ProcessStage, provider, story

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faas_stack.rig import Rig

FN = {"service": "fn", "image": IMAGE}


TEXTS: list[tuple[str, Any]] = [
    ("image", "{}"),
    ("envProcess", "{}"),
    ("namespace", "{}"),
    ("envVars", {"a": "{}"}),
    ("envVars", {"{}": "b"}),
    ("labels", {"a": "{}"}),
    ("labels", {"{}": "b"}),
    ("annotations", {"a": "{}"}),
    ("annotations", {"{}": "b"}),
    ("constraints", ["{}"]),
    ("secrets", ["{}"]),
    ("limits", {"cpu": "{}"}),
    ("requests", {"{}": "1"}),
]


@pytest.mark.parametrize(
    ("escaped", "shown"),
    [("a\\u0000b", "x00"), ("a\\ud800b", "ud800"), ("\\udfff", "udfff")],
    ids=["zero", "half", "other-half"],
)
def test_text_that_cannot_be_passed_to_process_is_refused(
    tmp_path: Path, escaped: str, shown: str
) -> None:
    """A text or name that cannot be passed to a process is a 400, and nothing is deployed."""

    async def deploying() -> None:
        async with provider(ProcessStage(), tmp_path) as rig:
            for field, data in TEXTS:
                document = json.dumps({**FN, field: data}).replace("{}", escaped).encode()
                for method in ("POST", "PUT"):
                    answer = await rig.call(method, "/system/functions", document)
                    assert (400, True) == (answer.status, shown.encode() in answer.body), answer
                    assert field.encode() in answer.body, answer
            whole = json.dumps({**FN, "service": "{}"}).replace("{}", escaped).encode()
            assert 400 == (await rig.call("POST", "/system/functions", whole)).status
            assert b"[]" == (await rig.call("GET", "/system/functions")).body
            deep = b'{"x": ' + b"[" * 500 + b'"\\ud800"' + b"]" * 500 + b"}"
            assert 400 == (await rig.call("POST", "/system/functions", deep)).status

    uvloop.run(deploying())


@pytest.mark.slow
@story(ProcessStage())
async def test_invalid_variable_names_are_refused(rig: Rig) -> None:
    """Environment variable names that are empty or contain ``=`` are refused."""
    for name in ("", "=", "a=b", "=a"):
        answer = await rig.call("POST", "/system/functions", {**FN, "envVars": {name: "x"}})
        assert 400 == answer.status
        assert f"envVars = '{name}': expected a name".encode() in answer.body
    await rig.deploy("fn", envVars={"a.b": "c=d\n\u00e9\u2028"})
    times = {"exec_timeout": "0", "read_timeout": "5", "sidecar_plan_folder": "/of/the/container"}
    await rig.deploy("times", envVars=times)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"envVars": {"exec_timeout": "-5s"}},
            "exec_timeout = '-5s': expected a duration such as 30s, or 0",
        ),
        ({"envVars": {"exec_timeout": "soon"}}, "exec_timeout = 'soon': expected a duration"),
        (
            {"envVars": {"sidecar_answer_max_bytes": "1MB"}},
            "sidecar_answer_max_bytes = '1MB': expected a whole number",
        ),
        ({"envProcess": " \t"}, "expected the handler's command"),
    ],
    ids=["negative", "ill-formed", "no-number", "blank"],
)
def test_settings_that_sidecar_refuses_are_refused(
    tmp_path: Path, fields: dict[str, Any], said: str
) -> None:
    """Settings that the sidecar would refuse are refused at deployment."""

    async def deploying() -> None:
        async with provider(ProcessStage(), tmp_path) as rig:
            for method in ("POST", "PUT"):
                answer = await rig.call(method, "/system/functions", {**FN, **fields})
                assert (400, True) == (answer.status, said.encode() in answer.body), answer
            assert b"[]" == (await rig.call("GET", "/system/functions")).body

    uvloop.run(deploying())


@story(ProcessStage())
async def test_secrets_and_namespaces_do_not_share_names(rig: Rig) -> None:
    """A secret and a namespace cannot share a name, as both are entries of one folder."""
    path = "/system/secrets"
    team = {"name": "key", "namespace": "team", "value": "v"}
    assert 202 == (await rig.call("POST", path, team)).status
    answer = await rig.call("POST", path, {"name": "team", "value": "v"})
    assert (400, True) == (answer.status, b"a namespace" in answer.body), answer
    assert 202 == (await rig.call("POST", path, {"name": "other", "value": "v"})).status
    answer = await rig.call("POST", path, {**team, "namespace": "other"})
    assert (400, True) == (answer.status, b"a secret has that name" in answer.body), answer
    names = json.loads((await rig.call("GET", path)).body)
    assert ["other"] == [secret["name"] for secret in names]
    half = b'{"name": "half", "value": "\\ud800"}'
    assert 400 == (await rig.call("POST", path, half)).status


SMALL = Capacity((0, 1), 0.0625 * 2, 2**33)  # 32 instances a core, and at least those of one


@pytest.mark.slow
@story(ProcessStage(), capacity=SMALL)
async def test_too_many_instances_are_refused(rig: Rig) -> None:
    """Too many instances are refused with the number that fits, and nothing changes."""
    labels = ({"com.carpool.scale.min": "99999"}, {"com.openfaas.scale.min": "9" * 30})
    for label in labels:
        for method, status in (("POST", 404), ("PUT", 200)):
            answer = await rig.call(method, "/system/functions", {**FN, "labels": label})
            assert (400, True) == (answer.status, b"at most 32" in answer.body), answer
            assert status == (await rig.call("GET", "/system/function/fn")).status
            if method == "POST":
                await rig.deploy("fn")
        await rig.call("DELETE", "/system/functions", {"functionName": "fn"})
    await rig.deploy("fn")
    await rig.deploy("other")
    for replicas, status, said in (
        (33, 400, b"at most 32"),
        (32, 503, b"31 would fit"),
        (2, 202, b""),
    ):
        answer = await rig.call("POST", "/system/scale-function/fn", {"replicas": replicas})
        assert (status, True) == (answer.status, said in answer.body), answer
    assert 2 == rig.function("fn").replicas


@pytest.mark.parametrize(
    "fields",
    [
        {"labels": {f"com.carpool.l{number}": "v" for number in range(500)}},
        {"annotations": {f"com.carpool.l{number}": "v" for number in range(500)}},
        {"envVars": {f"{number}=": "v" for number in range(500)}},
        {"limits": {str(number): number for number in range(500)}},
        {"secrets": [f"s{number}" for number in range(500)]},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_at_most_a_hundred_problems_are_reported(tmp_path: Path, fields: dict[str, Any]) -> None:
    """At most a hundred problems are reported, so that no request takes long."""

    async def deploying() -> None:
        async with provider(ProcessStage(), tmp_path) as rig:
            document = json.dumps({**FN, **fields}).encode()
            answer = await rig.call("POST", "/system/functions", document)
            assert (400, 100) == (answer.status, answer.body.count(b": expected "))

    uvloop.run(deploying())
