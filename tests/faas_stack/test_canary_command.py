"""Tests of ``carpool canary`` with a real provider: shares are shown and set, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from carpool.errors import CarpoolError, ConfigError
from faas_stack.canary_command import main
from tests.faas_stack.rig import ProcessStage, story

if TYPE_CHECKING:
    from tests.faas_stack.rig import Rig


async def said(rig: Rig, *argv: str) -> str:
    """Return the output of the command."""
    text = io.StringIO()

    def run() -> None:
        with contextlib.redirect_stdout(text):
            assert 0 == main([*argv, "--gateway", f"http://{rig.provider.address}"])

    await asyncio.to_thread(run)
    return text.getvalue()


@story(ProcessStage())
async def test_shares_are_shown_and_set(rig: Rig) -> None:
    """Each command replaces the previous shares, and no replica or other setting."""
    fields: dict[str, Any] = {
        "envVars": {"a": "b"},
        "labels": {"com.carpool.slo": "1s", "team": "x"},
        "annotations": {"note": "kept"},
        "limits": {"memory": "256Mi"},
    }
    await rig.deploy("new")
    await rig.deploy("fn", **fields)
    before = {each.name for each in rig.instances("fn")}
    assert "fn  100 %\n" == await said(rig, "fn")
    assert "fn   87.5 %\nnew  12.5 %\n" == await said(rig, "fn", "new=12.5%")
    label = {"com.carpool.canary": "new=12.5%"}
    deployed = rig.function("fn").deployment
    assert {**fields["labels"], **label} == deployed.labels
    assert (fields["envVars"], fields["annotations"], fields["limits"]) == (
        deployed.env_vars,
        deployed.annotations,
        deployed.limits,
    )
    shown = json.loads(await said(rig, "fn", "--json"))
    assert {"function": "fn", "percent": {"fn": 87.5, "new": 12.5}} == shown
    assert "fn   50 %\nnew  50 %\n" == await said(rig, "fn", "new=50")
    answers = [await rig.call("GET", "/function/fn") for _ in range(10)]
    assert 5 == [answer.header(b"x-carpool-function") for answer in answers].count(b"new")
    assert "fn  100 %\n" == await said(rig, "fn", "--off")
    assert fields["labels"] == rig.function("fn").deployment.labels
    assert before == {each.name for each in rig.instances("fn")}


@pytest.mark.slow
@story(ProcessStage())
async def test_invalid_shares_are_refused(rig: Rig) -> None:
    """Unknown functions, invalid shares and circular canaries are refused and change nothing."""
    await rig.deploy("new")
    await rig.deploy("fn")
    with pytest.raises(CarpoolError, match=r"no function 'nev'.*did you mean 'new'"):
        await said(rig, "fn", "nev=10")
    with pytest.raises(CarpoolError, match="no function 'fm'"):
        await said(rig, "fm")
    with pytest.raises(ConfigError, match="at most 100 together"):
        await said(rig, "fn", "new=101")
    with pytest.raises(ConfigError, match="either --off or shares"):
        await said(rig, "fn", "new=10", "--off")
    with pytest.raises(CarpoolError, match="expected other functions"):
        await said(rig, "fn", "fn=10")
    assert {} == rig.function("fn").deployment.labels
    with pytest.raises(CarpoolError, match="no provider answers at"):
        await asyncio.to_thread(main, ["fn", "--gateway", "http://127.0.0.1:1"])
