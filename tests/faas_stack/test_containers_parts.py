"""Tests of the docker backend's parts that need no engine: container settings, cores, files."""

from __future__ import annotations

import json
import os
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import requests
from docker.errors import APIError

from carpool.errors import ConfigError
from carpool.validation.problems import Problems
from faas_stack.partition.resources import Resources
from faas_stack.provider.deployment import Deployment
from faas_stack.provider.docker_command import _gpus
from faas_stack.provider.local.containers import docker_engine
from faas_stack.provider.local.containers.docker_engine import EngineError, refusal
from faas_stack.provider.local.containers.mounts import SecretMounts
from faas_stack.provider.local.containers.spec import Place, document
from faas_stack.provider.local.containers.state import State
from faas_stack.provider.local.journal import Entry, Journal
from faas_stack.provider.secrets import SecretStore
from faas_stack.provider.storage import NoSpace

if TYPE_CHECKING:
    from pathlib import Path

SIZE = "a size of at least 1MB such as 512Mi, 2Gi or 500MB"


def deployment(**fields: Any) -> Deployment:
    """Return a deployment as a client sends it."""
    return Deployment.from_json(json.dumps({"service": "fn", "image": "img", **fields}).encode())


def asked(place: Place | None = None, secrets: str = "", **fields: Any) -> dict[str, Any]:
    """Return the settings for the engine."""
    made = deployment(**fields)
    return document("fn-1", made, Resources.of(made), place or Place("s", "o", "net"), secrets)


def environment(container: dict[str, Any]) -> dict[str, str]:
    """Return the environment variables of a container."""
    return dict(text.split("=", 1) for text in container["Env"])


# -- what the engine is asked for ---------------------------------------------------------------


def test_plain_function_has_no_limits_or_privileges() -> None:
    """A function without resources gets no limits and no privileges."""
    container = asked()
    host = container["HostConfig"]
    assert ("img", {"Test": ["NONE"]}) == (container["Image"], container["Healthcheck"])
    assert ("net", ["ALL"], ["no-new-privileges"]) == (
        *(host["NetworkMode"], host["CapDrop"]),
        host["SecurityOpt"],
    )
    assert set() == {"Memory", "NanoCpus", "DeviceRequests", "IpcMode"} & set(host)
    assert ("", False, {}, []) == (
        *(host["CpusetCpus"], host["ReadonlyRootfs"]),
        *(host["Tmpfs"], host["Mounts"]),
    )
    assert {"Name": "no"} == host["RestartPolicy"]


def test_command_overrides_environment_and_labels() -> None:
    """The command overrides the deployment's variables, which override those from labels."""
    env = environment(
        asked(
            labels={"com.carpool.slo": "200ms", "com.carpool.cpu": "2.5", "other": "x"},
            envVars={"carpool_slo": "100ms", "mine": "a=b", "fprocess": "not this"},
            envProcess="python x.py",
        )
    )
    assert {
        "carpool_slo": "100ms",
        "OMP_NUM_THREADS": "2",
        "mine": "a=b",
        "fprocess": "python x.py",
        "secret_mount_path": "/var/openfaas/secrets",
        "OPENFAAS_NAME": "fn",
        "OPENFAAS_NAMESPACE": "openfaas-fn",
    }.items() <= env.items()
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in env


def test_function_labels_cannot_replace_carpool_labels() -> None:
    """A container has the function's labels, which cannot replace Carpool's own."""
    made = deployment(labels={"topic": "cats", "carpool.stack": "forged"}, namespace="team")
    shown = document("fn-1", made, Resources(), Place("s", "o", "net", ("1", "3"), "0,2"))["Labels"]
    assert {
        "topic": "cats",
        "carpool.stack": "s",
        "carpool.owner": "o",
        "carpool.function": "fn",
        "carpool.namespace": "team",
        "carpool.deployment": made.uid,
        "carpool.cores": "1,3",
        "carpool.gpus": "",
        "carpool.instance": "fn-1",
    } == shown


def test_limits_of_a_container() -> None:
    """Cores become a quota, requests a weight and a reservation, and memory never swaps."""
    host = asked(
        limits={"cpu": "500m", "memory": "256Mi"}, requests={"cpu": "0.25", "memory": "64Mi"}
    )["HostConfig"]
    assert (500_000_000, 256 * 2**20, 256 * 2**20) == (
        *(host["NanoCpus"], host["Memory"]),
        host["MemorySwap"],
    )
    assert (256, 64 * 2**20) == (host["CpuShares"], host["MemoryReservation"])


@pytest.mark.parametrize(
    ("cores", "pool", "constraints", "expected"),
    [
        ((), "", [], ""),
        ((), "0,2", [], "0,2"),
        (("1", "3"), "0,2", ["cpu=pinned"], "1,3"),
        ((), "0,2", ["cpuset=0-3"], "0-3"),
    ],
)
def test_container_gets_own_constrained_or_unpinned_cores(
    cores: tuple[str, ...], pool: str, constraints: list[str], expected: str
) -> None:
    """A container gets its own cores, else those of its constraint, else the unpinned ones."""
    place = Place("s", "o", "net", cores, pool)
    assert expected == asked(place, constraints=constraints)["HostConfig"]["CpusetCpus"]


def test_carpool_labels_override_limits() -> None:
    """Carpool's labels override limits, as scaling plans use labels."""
    host = asked(
        labels={"com.carpool.cpu": "2", "com.carpool.memory": "1Gi"},
        limits={"cpu": "1", "memory": "256Mi"},
    )["HostConfig"]
    assert (2_000_000_000, 2**30) == (host["NanoCpus"], host["Memory"])


def test_read_only_root_and_secrets() -> None:
    """A read-only root has a writable /tmp, and secrets are mounted read-only."""
    host = asked(secrets="/host/s", readOnlyRootFilesystem=True, secrets_=[])["HostConfig"]
    assert (True, ["/tmp"]) == (host["ReadonlyRootfs"], list(host["Tmpfs"]))
    assert [("bind", "/host/s", "/var/openfaas/secrets", True)] == [
        tuple(mount.values()) for mount in host["Mounts"]
    ]


def test_gpu_share_uses_mps() -> None:
    """A function with a share of a GPU uses it through MPS with its percentage."""
    place = Place("s", "o", "net", gpus=("1",), mps="/run/mps")
    container = asked(place, labels={"com.carpool.gpu": "25"})
    host = container["HostConfig"]
    assert [{"DeviceIDs": ["1"], "Capabilities": [["gpu"]]}] == host["DeviceRequests"]
    assert ("host", "/run/mps") == (host["IpcMode"], host["Mounts"][0]["Source"])
    assert "25" == environment(container)["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]


# -- resources ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, Resources()),
        ({"limits": {"cpu": "2"}}, Resources(cpu=2.0)),
        ({"limits": {"nvidia.com/gpu": "2"}}, Resources(gpus=2, gpu_percent=100.0)),
        ({"labels": {"com.carpool.gpu": "40"}}, Resources(gpus=1, gpu_percent=40.0)),
        ({"constraints": ["cpuset=0-1,3"]}, Resources(cpuset="0-1,3")),
        ({"constraints": ["cpu=pinned", "zone == a"]}, Resources(pinned=True)),
    ],
)
def test_resources_of_deployment_are_read(fields: dict[str, Any], expected: Resources) -> None:
    """A deployment's resources are read, and unknown constraints are ignored."""
    assert expected == Resources.of(deployment(**fields))


@pytest.mark.parametrize(("cpu", "cores"), [("0.5", 1), ("2", 2), ("2.4", 2)])
def test_pinned_functions_get_whole_cores(cpu: str, cores: int) -> None:
    """Pinned functions get the nearest whole number of cores, and at least one."""
    made = deployment(labels={"com.carpool.cpu": cpu}, constraints=["cpu=pinned"])
    assert cores == Resources.of(made).whole_cores
    assert 0 == Resources.of(deployment(labels={"com.carpool.cpu": cpu})).whole_cores


def test_invalid_quantities_are_reported_together() -> None:
    """All invalid quantities are reported together, with a suggestion where possible."""
    with pytest.raises(ConfigError) as caught:
        Resources.of(
            deployment(
                limits={"cpu": "many", "memory": "128m", "nvidia.com/gpu": "-1"},
                requests={"cpu": "inf", "memory": "1"},
            )
        )
    assert [
        f"limits.memory = '128m': expected {SIZE}; did you mean '128Mi'?",
        f"requests.memory = '1': expected {SIZE}",
        "limits.cpu = 'many': expected a number of cores such as 0.5 or 500m",
        "limits.nvidia.com/gpu = '-1': expected a whole number of GPUs",
        "requests.cpu = 'inf': expected a number of cores such as 0.5 or 500m",
    ] == str(caught.value).splitlines()


def test_full_disk_and_engine_errors_have_different_statuses() -> None:
    """A full disk and other errors of the engine have different statuses."""
    for text, kind, status in (
        ("write /x: no space left on device", NoSpace, 507),
        ("Minimum memory limit allowed is 6MB", EngineError, 500),
    ):
        answer = requests.Response()
        answer.status_code = 400
        error = refusal(APIError("refused", response=answer, explanation=text))
        assert (True, status, True) == (isinstance(error, kind), error.status, text in str(error))


@pytest.mark.parametrize(
    ("text", "names"),
    [("0", ()), ("2", ("0", "1")), ("MIG-a,GPU-b", ("MIG-a", "GPU-b"))],
)
def test_gpus_by_number_or_name(text: str, names: tuple[str, ...]) -> None:
    """GPUs are given by their number or by name, such as MIG instances, which have no number."""
    assert names == _gpus(text)


def test_invalid_gpu_error_says_what_is_expected() -> None:
    """The error for other values says what is expected."""
    with pytest.raises(ConfigError, match="--gpus = 'a100': expected a number, or UUIDs"):
        _gpus("a100")


# -- files --------------------------------------------------------------------------------------


def test_journal_returns_newest_entry_of_each_function(tmp_path: Path) -> None:
    """The journal returns the newest entry of each function, unless it was forgotten."""
    journal = Journal(tmp_path / "functions")
    created = datetime(2026, 1, 2, tzinfo=UTC)
    first = Entry(deployment(envVars={"key": "x"}, labels={"com.carpool.slo": "1s"}), 1, created)
    second = Entry(deployment(namespace="team"), 0, created)
    for entry in (first, second, Entry(first.deployment, 3, created)):
        journal.keep(entry)
    found = list(Journal(tmp_path / "functions").entries())
    assert [(3, first.deployment.uid), (0, second.deployment.uid)] == [
        (entry.replicas, entry.deployment.uid) for entry in found
    ]
    assert [first.deployment, second.deployment] == [entry.deployment for entry in found]
    assert [created] * 2 == [entry.created for entry in found]
    assert {0o600} == {path.stat().st_mode & 0o777 for path in (tmp_path / "functions").iterdir()}
    journal.forget("fn", "team")
    assert 1 == len(list(journal.entries()))
    journal.clear()
    assert [] == list(journal.entries())


def test_invalid_journal_entry_error_has_file_name(tmp_path: Path) -> None:
    """The error for an invalid entry has its file name and says what to do."""
    (tmp_path / "fn.openfaas-fn.json").write_text('{"deployment": {}}')
    with pytest.raises(ConfigError, match=r"(?s)fn\.openfaas-fn\.json.*deploy the function again"):
        list(Journal(tmp_path).entries())


def test_unwritable_journal_entry_changes_nothing(tmp_path: Path) -> None:
    """An entry that cannot be written is an error and changes nothing."""
    (tmp_path / "functions").write_text("in the way")
    with pytest.raises(NoSpace, match="nothing was changed"):
        Journal(tmp_path / "functions").keep(Entry(deployment(), 1, datetime.now(UTC)))


def test_secrets_are_readable_only_in_container(tmp_path: Path) -> None:
    """Secrets are readable in the container, whatever its user, and not for other users outside."""
    store = SecretStore(tmp_path / "secrets")
    store.create("key", "openfaas-fn", b"value")
    mounts = SecretMounts(store, tmp_path / "mounts", tmp_path / "elsewhere")
    made = deployment(secrets=["key"])
    assert str(tmp_path / "elsewhere" / "fn-1") == mounts.lay_out("fn-1", made)
    folder = tmp_path / "mounts" / "fn-1"
    modes = [path.stat().st_mode & 0o777 for path in (folder.parent, folder, folder / "key")]
    assert [0o700, 0o755, 0o444] == modes
    assert b"value" == (folder / "key").read_bytes()
    store.update("key", "openfaas-fn", b"new")
    mounts.lay_out("fn-1", made)
    assert b"new" == (folder / "key").read_bytes()
    mounts.keep_only({"fn-2"})
    assert [] == list(folder.parent.iterdir())
    assert "" == mounts.lay_out("fn-1", deployment())
    problems = Problems()
    store.check(deployment(secrets=["key", "nope"]), problems)
    assert 1 == len(problems)


def test_second_provider_on_state_folder_is_refused(tmp_path: Path) -> None:
    """A second provider on a state folder is refused, and the owner mark stays the same."""
    first = State(tmp_path / "state")
    with pytest.raises(ConfigError, match="one runs on it already"):
        State(tmp_path / "state")
    first.close()
    second = State(tmp_path / "state")
    assert first.owner == second.owner
    second.close()


def test_socket_permission_error_names_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error for a socket that may not be opened says which group to set."""
    path = tmp_path / "docker.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    assert "" == docker_engine._not_ours()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        assert "" == docker_engine._not_ours()
        monkeypatch.setattr(os, "access", lambda *_: False)  # root may do anything
        hint = docker_engine._not_ours()
    assert f"set DOCKER_GID={path.stat().st_gid} for the compose stack" in hint
