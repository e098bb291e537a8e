"""Tests of what functions with a scaling policy get in addition to their deployment."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from carpool.settings import FunctionSettings
from carpool.sync import function_token
from faas_stack.provider.deployment import Deployment
from faas_stack.provider.scaler_access import ScalerAccess, token_file
from faas_stack.provider.secrets import SecretStore
from tests.faas_stack.rig import IMAGE, ProcessStage, story

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faas_stack.rig import Rig

POLICY = {"com.carpool.scale.policy": "infless", "com.carpool.scale.min": "0"}
SECRET = "carpool-scaler-token"


def deployment(labels: dict[str, str] | None = None, **env: str) -> Deployment:
    """Return a function with these labels and variables."""
    settings = FunctionSettings.from_labels(labels or {}, {})
    return Deployment("fn", "image", labels=labels or {}, env_vars=env, settings=settings)


def test_fronts_and_instances_get_scaler_address_and_token(tmp_path: Path) -> None:
    """Fronts and instances get the scaler's address and token, and keep their deployment's id."""
    access = ScalerAccess("scaler:8090", SecretStore(tmp_path))
    for scaled in (deployment(POLICY, mode="http"), deployment(sidecar_class="c1", mode="http")):
        granted = access.grant(scaled)
        assert ("scaler:8090", "http") == (
            granted.env_vars["sidecar_scaler"],
            granted.env_vars["mode"],
        )
        assert ((SECRET,), scaled.uid) == (granted.secrets, granted.uid)
        assert granted == access.grant(granted)
    assert 20 < len((tmp_path / SECRET).read_text())


def test_unscaled_functions_and_own_scalers_are_unchanged(tmp_path: Path) -> None:
    """Functions without a scaling policy, or with a scaler of their own, are unchanged."""
    access = ScalerAccess("scaler:8090", SecretStore(tmp_path))
    for alone in (deployment(), deployment(POLICY, sidecar_scaler="mine:1")):
        assert alone is access.grant(alone)
    assert [] == list(tmp_path.iterdir())


def test_namespaces_share_a_token_unless_they_have_their_own(tmp_path: Path) -> None:
    """All namespaces share one token, which is made once, except those with their own."""
    store = SecretStore(tmp_path)
    store.create(SECRET, "theirs", b"another")
    first = token_file(store, "second").read_bytes()
    assert first == token_file(store).read_bytes() == token_file(store, "second").read_bytes()
    assert b"another" == token_file(store, "theirs").read_bytes()


def test_front_and_instances_share_their_own_token(tmp_path: Path) -> None:
    """A front and its instances share a token, which other functions and the scaler do not have."""
    store = SecretStore(tmp_path)
    access = ScalerAccess("scaler:8090", store)
    instance = replace(
        deployment(sidecar_class="c1", sidecar_function="fn"), service="fn--c1", labels={}
    )
    other = replace(deployment(POLICY), service="other")
    for each in (deployment(POLICY), instance, other):
        access.grant(each)
    master = token_file(store).read_bytes()
    tokens = [
        path.read_bytes()
        for name in ("fn", "fn--c1", "other")
        if (path := store.path(SECRET, "openfaas-fn", name))
    ]
    expected = [function_token(master, name) for name in ("fn", "fn", "other")]
    assert expected == tokens
    assert [SECRET] == store.names("openfaas-fn")


@story()
async def test_front_has_one_replica_and_hides_scaler_access(rig: Rig) -> None:
    """A front has one replica, and what it gets for the scaler is visible only inside."""
    rig.orchestrator.scaler = ScalerAccess("127.0.0.1:9", SecretStore(rig.folder / "secrets"))
    await rig.deploy("fn", labels=POLICY)
    status = json.loads((await rig.call("GET", "/system/function/fn")).body)
    assert (1, POLICY) == (status["replicas"], status["labels"])
    assert set() == {"envVars", "secrets"} & status.keys()
    seen = json.loads((await rig.call("GET", "/function/fn")).body)
    assert "127.0.0.1:9" == seen["env"]["sidecar_scaler"]
    assert [SECRET] == list(seen["secrets"])
    assert seen["secrets"][SECRET] not in str(seen["env"])
    info = json.loads((await rig.call("GET", "/system/info")).body)
    assert "127.0.0.1:9" == info["scaler"]
    await rig.call("PUT", "/system/functions", {"service": "fn", "image": IMAGE, "labels": POLICY})
    assert 1 == rig.function("fn").replicas


@pytest.mark.slow
@story(ProcessStage())
async def test_token_is_removed_with_its_function(rig: Rig) -> None:
    """A function that is removed, no longer scaled or refused has no token; others keep theirs."""
    store = SecretStore(rig.folder / "secrets")
    rig.orchestrator.scaler = ScalerAccess("127.0.0.1:9", store)

    def holders() -> list[str]:
        return [name for name in "abc" if store.path(SECRET, "openfaas-fn", name) != master]

    master = token_file(store)
    for name in "ab":
        await rig.deploy(name, labels=POLICY)
    none_such = {"service": "c", "image": "none-such", "labels": POLICY}
    assert 400 == (await rig.call("POST", "/system/functions", none_such)).status
    assert ["a", "b"] == holders()
    await rig.call("DELETE", "/system/functions", {"functionName": "a"})
    assert ["b"] == holders()
    again = {"service": "b", "image": IMAGE, "labels": POLICY}
    assert 409 == (await rig.call("POST", "/system/functions", again)).status
    assert ["b"] == holders()
    await rig.call("PUT", "/system/functions", {"service": "b", "image": IMAGE})
    assert [] == holders()


@pytest.mark.parametrize("text", ["scaler", "scaler:x", ":"])
def test_bad_address_of_the_scaler(text: str, tmp_path: Path) -> None:
    """An invalid address of the scaler is refused before anything is written."""
    from tests.docker.command import Command

    done = Command(tmp_path).run("--scaler", text)
    assert 2 == done.returncode
    assert f"--scaler = '{text}': expected HOST:PORT" in done.stderr
    assert [] == list(tmp_path.iterdir())
