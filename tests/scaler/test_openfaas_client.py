"""The scaler's calls of a real provider."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from carpool.basic_auth import credentials
from carpool.plan import InstanceClass
from faas_stack.provider.basic_auth_check import BasicAuth
from faas_stack.provider.storage import NoSpace
from scaler.control.action import Action, ProviderError
from scaler.control.class_function import FUNCTION_LABEL, Status, class_function
from scaler.kubernetes.lease import Timing
from scaler.openfaas_client import CONNECT_S, GatewayClient
from tests.faas_stack.rig import IMAGE, ProcessStage, story

if TYPE_CHECKING:
    from collections.abc import Callable

    from faas_stack.provider.deployment import Deployment
    from tests.faas_stack.rig import Rig

KIND = InstanceClass("b4-c1", cpu=1, batch_size=4, replicas=0)
NAME = "echo--b4-c1"


async def blocking(call: Callable[[], Any]) -> Any:
    """Run ``call`` in a thread, as the scaler does, while the provider continues."""
    return await asyncio.to_thread(call)


@story(ProcessStage())
async def test_a_class_is_deployed_scaled_updated_and_removed(rig: Rig) -> None:
    """The provider's list shows the effect of each action."""
    await rig.deploy("echo", labels={"com.carpool.scale.policy": "infless"})
    gateway = GatewayClient(f"http://{rig.provider.address}")

    async def act(verb: Any, **fields: Any) -> dict[str, Status]:
        action = Action(verb, KIND.name, NAME, **fields)
        await blocking(lambda: gateway.carry_out(action))
        found: dict[str, Status] = await blocking(gateway.functions)
        return found

    assert {"provider", "machine"} <= (await blocking(gateway.info)).keys()
    base = (await blocking(gateway.functions))["echo"]
    document = class_function(base, KIND)
    listed = await act("deploy", document=document)
    assert (0, "echo", IMAGE) == (
        listed[NAME].replicas,
        listed[NAME].labels[FUNCTION_LABEL],
        listed[NAME].document["image"],
    )
    assert 2 == (await act("scale", replicas=2))[NAME].replicas
    await rig.ready(NAME, 2)
    newer = {**document, "envVars": {**document["envVars"], "word": "new"}}
    updated = (await act("update", document=newer))[NAME]
    assert "new" == updated.document["envVars"]["word"]
    assert NAME not in await act("delete")
    assert NAME not in await act("delete")  # gone is what was asked for
    gateway.close()


@story(ProcessStage())
async def test_error_has_reason_of_refusal(rig: Rig) -> None:
    """The error has the provider's response, or says that it cannot be reached."""
    gateway = GatewayClient(f"http://{rig.provider.address}")
    scale = Action("scale", "b4-c1", NAME, replicas=2)
    with pytest.raises(ProviderError, match="answered 404"):
        await blocking(lambda: gateway.carry_out(scale))
    dry = GatewayClient(f"http://{rig.provider.address}", dry=True)
    await blocking(lambda: dry.carry_out(scale))
    nowhere = GatewayClient("http://127.0.0.1:1")
    with pytest.raises(ProviderError, match="cannot be reached"):
        await blocking(nowhere.functions)


@story(ProcessStage())
async def test_full_disk_is_no_lack_of_capacity(rig: Rig) -> None:
    """A provider whose disk is full accepts a class no sooner if other instances are removed."""

    async def deploy(_: Deployment) -> None:
        raise NoSpace

    gateway = GatewayClient(f"http://{rig.provider.address}")
    action = Action("deploy", KIND.name, NAME, document={"service": NAME, "image": IMAGE})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rig.provider.orchestrator, "deploy", deploy)
        with pytest.raises(ProviderError, match="answered 507") as raised:
            await blocking(lambda: gateway.carry_out(action))
    assert not raised.value.refused
    gateway.close()


@story(ProcessStage(), auth=BasicAuth("admin", "s3cret"))
async def test_gateway_credential_files_give_access(rig: Rig) -> None:
    """The gateway's own credential files give access, and without them calls are refused."""
    folder = rig.folder / "auth"
    folder.mkdir()
    (folder / "basic-auth-user").write_text("admin\n")
    (folder / "basic-auth-password").write_text("s3cret\n")
    url = f"http://{rig.provider.address}"
    assert {} == await blocking(GatewayClient(url, credentials(folder)).functions)
    with pytest.raises(ProviderError, match="401"):
        await blocking(GatewayClient(url).functions)


def test_omitted_counts_are_zero() -> None:
    """A Go provider's list omits counts of zero."""
    status = Status.of({"name": "f", "labels": None})
    assert (0, 0, {}) == (status.replicas, status.available, status.labels)


@story(ProcessStage())
async def test_scaler_without_lead_changes_nothing(rig: Rig) -> None:
    """It can read the list, but its actions are refused."""
    await rig.deploy("echo")
    gateway = GatewayClient(f"http://{rig.provider.address}")
    leads = [False]
    gateway.leads = lambda: leads[0]
    scale = Action("scale", "", "echo", replicas=0)
    with pytest.raises(ProviderError, match="no longer the leader"):
        await blocking(lambda: gateway.carry_out(scale))
    assert 1 == (await blocking(gateway.functions))["echo"].replicas
    leads[0] = True
    await blocking(lambda: gateway.carry_out(scale))
    assert 0 == (await blocking(gateway.functions))["echo"].replicas
    gateway.close()


def test_changes_are_sent_before_another_scaler_may_lead() -> None:
    """A change checked at the last moment of the lead is sent before another scaler can lead."""
    timing = Timing()
    assert timing.deadline_s + CONNECT_S <= timing.duration_s
