"""GPUs on nodes simulated by kwok, four each: planned instances are placed, in whole shares."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import requests

from tests.cluster.fake_nodes import SIZE
from tests.cluster.played_sidecars import PlayedSidecars
from tests.cluster.provider_process import provider_process
from tests.cluster.scaler_process import TOKEN, ScalerProcess
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.slow
NODES, GPUS = 2, 4
PERCENT = 40
SCENARIO = {
    "models": {"m": {"linear": {"base_ms": 20, "per_item_ms": 2, "cpu": 1, "gpu": PERCENT}}},
    "functions": [
        {
            "name": "fn",
            "model": "m",
            "slo_ms": 200,
            "apps": [{"name": "any", "arrivals": {"poisson": {"rate": 1}}}],
        }
    ],
}
RATE_RPS = 20_000.0  # for more instances than all GPUs have room for
FUNCTION = {
    "service": "fn",
    "image": "fake:1",
    "labels": {"com.carpool.slo": "200ms", "com.carpool.scale.policy": "infless"},
}


@pytest.mark.parametrize(
    ("shares", "taken", "said"),
    [
        (1, 1, ("takes 100 % of a GPU for 40 %: 1 of 1 slots", "rounded up to a whole one")),
        (4, 2, ("takes 50 % of a GPU for 40 %: 2 of 4 slots", "rounded up to 2 of 4 shares")),
    ],
)
def test_planned_gpus_are_all_placed(
    control_plane: Cluster,
    tmp_path: Path,
    figure: Callable[[str], None],
    shares: int,
    taken: int,
    said: tuple[str, str],
) -> None:
    """All GPUs are used, none is overcommitted, and plan and provider report the rounding."""
    resource = f"carpool.test/gpu-{shares}"  # which no node of another test has
    nodes = control_plane.fake_nodes(NODES, {**SIZE, resource: str(GPUS * shares)})
    space = control_plane.namespace()
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "scenario.yaml").write_text(json.dumps(SCENARIO))
    gpus = ("--gpu-resource", f"{resource}={shares}")
    token = ("--scaler", "127.0.0.1:1", "--scaler-token-file", str(tmp_path / "token"))
    with provider_process(control_plane, space, *gpus, *token) as provider:
        scaler = ScalerProcess(
            tmp_path / "scaler",
            control_plane.kubeconfig,
            f"{space}/scaler",
            *("--gateway", provider.url, "--scenario", str(tmp_path / "scenario.yaml"), *gpus),
        )
        try:
            scaler.wait()
            url = f"{provider.url}/system/functions"
            requests.post(url, json=FUNCTION, timeout=HANG_S).raise_for_status()
            with PlayedSidecars(control_plane, space, "fn", scaler, RATE_RPS):
                each = GPUS * (shares // taken)
                wait_until(lambda: planned(scaler) == NODES * each, what="a plan for all GPUs")
                wait_until(
                    lambda: (
                        asked(control_plane, space, resource, placed=True)
                        == dict.fromkeys(nodes, each * taken)
                    ),
                    what="all that is planned, placed",
                )
                found = scaler.explain("fn")
                statuses = requests.get(url, timeout=HANG_S).json()
        finally:
            scaler.end()
    assert {} == asked(control_plane, space, resource, placed=False)
    assert found["unplaced_rps"] > 0
    by_plan, by_provider = said
    assert any(by_plan in remark for remark in found["remarks"]), found["remarks"]
    assert any(by_provider in str(each.get("partition")) for each in statuses), statuses
    figure(
        f"{NODES} nodes of {GPUS} GPUs in {shares} shares, {PERCENT} % each: "
        f"{NODES * each} planned and placed, {each * taken} of {GPUS * shares} shares of each node"
    )


def planned(scaler: ScalerProcess) -> int:
    """Return the number of planned instances."""
    plan = scaler.explain("fn").get("plan") or {"classes": ()}
    return sum(each["replicas"] for each in plan["classes"])


def asked(cluster: Cluster, space: str, resource: str, *, placed: bool) -> dict[str, int]:
    """Return the shares requested by pods, by node, or those of pods without a node."""
    found: Counter[str] = Counter()
    for pod in cluster.api.get(f"/api/v1/namespaces/{space}/pods")["items"]:
        limits: dict[str, Any] = pod["spec"]["containers"][0]["resources"].get("limits", {})
        node = pod["spec"].get("nodeName", "")
        if bool(node) == placed and resource in limits:
            found[node] += int(limits[resource])
    return dict(found)
