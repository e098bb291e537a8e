"""Tests of what `carpool doctor` reads from a compose file, gateway, provider and Prometheus."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from carpool.errors import ConfigError
from tests.faas_stack.doctor_case import Doctor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCALED = {"labels": {"com.carpool.slo": "1s", "com.carpool.scale.policy": "infless"}}
GATEWAY = {"image": "ghcr.io/openfaas/gateway:0.27.14"}


@pytest.fixture
def doctor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """A doctor with a folder for stack files."""
    return Doctor(tmp_path, capsys)


@contextmanager
def answering(documents: dict[str, Any]) -> Iterator[str]:
    """Run a server with these documents by path, as others would send them, and return its URL."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = documents.get(self.path)
            body = known if isinstance(known, bytes) else json.dumps(known).encode()
            self.send_response(200 if known is not None else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def checks(found: list[dict[str, str]]) -> list[str]:
    """Return the checks of the findings."""
    return [each["check"] for each in found]


def test_alert_manager_is_a_finding_if_functions_are_scaled(doctor: Doctor) -> None:
    """AlertManager is a finding only if functions are scaled."""
    doctor.compose({"alerts": {"image": "prom/alertmanager:v0.27.0"}})
    (found,) = doctor.says(SCALED)
    assert "alertmanager" == found["check"]
    assert found["where"].endswith("compose.yaml: services.alerts.image")
    assert [] == doctor.says({})


def test_service_counts_only_if_its_profile_is_active(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service counts only if its profile is active."""
    doctor.compose({"alerts": {"image": "prom/alertmanager", "profiles": ["alerts"]}})
    assert [] == doctor.says(SCALED)
    monkeypatch.setenv("COMPOSE_PROFILES", "other,alerts")
    assert ["alertmanager"] == checks(doctor.says(SCALED))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{x: 2024-13-45, services: {a: {}}}", "valid YAML"),
        ("services: {a: {environment: text}}", "services.a.environment = 'text': expected a map"),
        ("services: {a: {profiles: 5}}", "services.a.profiles = '5': expected a list"),
    ],
)
def test_invalid_compose_file_is_refused(doctor: Doctor, text: str, said: str) -> None:
    """A compose file that Compose itself would refuse is an error with the place."""
    (doctor.folder / "compose.yaml").write_text(text)
    with pytest.raises(ConfigError) as raised:
        doctor.says({})
    assert said in str(raised.value)


def test_alert_manager_is_found_by_prometheus_address(doctor: Doctor) -> None:
    """AlertManager is found by the address to which Prometheus sends alerts."""
    url = "http://alerts:9093/api/v2/alerts"
    data = {"status": "success", "data": {"activeAlertmanagers": [{"url": url}]}}
    with answering({"/api/v1/alertmanagers": data}) as prometheus:
        (found,) = doctor.says(SCALED, "--prometheus", prometheus)
    assert ("alertmanager", f"AlertManager {url}") == (found["check"], found["where"])
    data["data"] = {"activeAlertmanagers": []}
    with answering({"/api/v1/alertmanagers": data}) as prometheus:
        assert [] == doctor.says(SCALED, "--prometheus", prometheus)


def test_gateway_timeouts_are_ordered(doctor: Doctor) -> None:
    """exec_timeout is at most upstream_timeout, which is less than the gateway's other timeouts."""
    times = {"upstream_timeout": "60s", "read_timeout": "60s", "write_timeout": "65s"}
    doctor.compose({"gateway": {**GATEWAY, "environment": times}})
    found = doctor.says({"environment": {"exec_timeout": "90s"}})
    assert ["gateway-timeout", "gateway-order"] == checks(found)
    assert "at most the gateway's timeout, which is 1m" in found[0]["expected"]
    assert "less than read_timeout, which is 1m" in found[1]["expected"]
    times |= {"upstream_timeout": "2m", "read_timeout": "125s", "write_timeout": "125s"}
    as_list = [f"{name}={value}" for name, value in times.items()]
    doctor.compose({"gateway": {**GATEWAY, "environment": as_list}})
    assert [] == doctor.says({"environment": {"exec_timeout": "90s"}})


def test_timeout_option_overrides_default(doctor: Doctor) -> None:
    """An option for the gateway's timeout overrides the edition's default."""
    slow = {"environment": {"exec_timeout": "90s"}}
    assert [] == doctor.says(slow)
    assert ["gateway-timeout"] == checks(doctor.says(slow, "--ce"))
    assert ["gateway-timeout"] == checks(doctor.says(slow, "--gateway-timeout", "1m29s"))
    assert [] == doctor.says(slow, "--ce", "--gateway-timeout", "90s")


def test_community_edition_limits(doctor: Doctor) -> None:
    """The Community Edition allows five replicas, and fifteen functions including their classes."""
    env = {"sidecar_scaler": "scaler:8090", "sidecar_scaler_token": "t"}
    doctor.compose({"scaler": {"image": "carpool/scaler"}})
    most = {"labels": {**SCALED["labels"], "com.carpool.scale.max": "6"}, "environment": env}
    (found,) = doctor.says(most, "--ce")
    assert ("replicas", "6", "at most 5") == (found["check"], found["value"], found["expected"])
    theirs = {"labels": {"com.openfaas.scale.min": "7"}}
    assert ["replicas"] == checks(doctor.says(theirs, "--ce"))
    assert [] == doctor.says(theirs)
    many: dict[str, Any] = {f"fn{number}": {} for number in range(14)}
    scaled = {**SCALED, "environment": env}
    assert [] == doctor.says_of(many | {"fn14": {}}, "--ce")
    (found,) = doctor.says_of(many | {"fn14": scaled}, "--ce")
    assert ("functions", "16") == (found["check"], found["value"])


def test_gateway_reports_its_provider_and_functions(doctor: Doctor) -> None:
    """OpenFaaS's gateway reports its provider, and functions deployed there are counted."""
    info = {"provider": {"provider": "faasd", "orchestration": "containerd"}, "version": {}}
    listed = [{"name": f"old{number}"} for number in range(15)]
    with answering({"/system/info": info, "/system/functions": listed}) as gateway:
        scaled = {"labels": {**SCALED["labels"], "com.carpool.gpu": "50"}}
        found = doctor.says(scaled, "--gateway", gateway)
    assert ["scaler-address", "functions", "gpu"] == checks(found)
    assert ("", "17") == (found[0]["value"], found[1]["value"])
    assert "0, as faasd gives functions none" == found[2]["expected"]


def test_scaler_address_is_needed_only_if_provider_gives_none(doctor: Doctor) -> None:
    """Functions need the scaler's address only if the provider does not give it to them."""
    info = {"provider": "carpool", "orchestration": "docker", "version": {}}
    for scaler, found in (({}, ["scaler-address"]), ({"scaler": "scaler:8090"}, [])):
        with answering({"/system/info": {**info, **scaler}, "/system/functions": []}) as provider:
            assert found == checks(doctor.says(SCALED, "--gateway", provider))
    for option, missing in ([], True), (["--scaler=scaler:8090"], False):
        command = ["carpool", "provider", "docker", *option]
        doctor.compose({"provider": {"entrypoint": command}, "gateway": GATEWAY})
        assert missing == ("scaler-address" in checks(doctor.says(SCALED)))


def test_container_provider_has_no_community_edition_limits(doctor: Doctor) -> None:
    """Carpool's container provider has no bounds of the Community Edition and may have GPUs."""
    info = {"provider": "carpool", "orchestration": "docker", "version": {}}
    labels = {"com.carpool.gpu": "50", "com.openfaas.scale.max": "20"}
    with answering({"/system/info": info, "/system/functions": []}) as provider:
        assert [] == doctor.says({"labels": labels}, "--gateway", provider)
    info["orchestration"] = "process"
    with answering({"/system/info": info, "/system/functions": []}) as provider:
        assert ["gpu"] == checks(doctor.says({"labels": labels}, "--gateway", provider))


def test_functions_of_process_provider_share_ports(doctor: Doctor) -> None:
    """Functions of a process provider share ports; those in containers do not."""
    functions = {name: {"environment": {"sidecar_grpc": "0.0.0.0:9000"}} for name in ("a", "b")}
    for kind, found in (("docker", []), ("process", ["grpc-port"])):
        info = {"provider": "carpool", "orchestration": kind}
        with answering({"/system/info": info, "/system/functions": []}) as provider:
            assert found == checks(doctor.says_of(functions, "--gateway", provider))


def test_limits_and_gpus_are_checked_against_provider_machine(doctor: Doctor) -> None:
    """Limits and GPUs are checked against the provider's machine, as the provider does."""
    machine = {"cpus": 2.0, "gpus": 0, "memory_mb": 1000.0}
    info = {"provider": "carpool", "orchestration": "process", "machine": machine}
    half, two = {"limits": {"cpu": "500m"}}, {"limits": {"cpu": "1"}, **labels("scale.min", "2")}
    with answering({"/system/info": info, "/system/functions": []}) as provider:
        asked = ("--gateway", provider)
        assert [] == doctor.says_of({"a": two, "b": {}}, *asked)
        (found,) = doctor.says_of({"a": two, "b": half}, *asked)
        large = {"limits": {"memory": "2Gi"}}
        (second,) = doctor.says_of({"a": large}, *asked)
        assert ["gpu"] == checks(doctor.says(labels("gpu", "50"), *asked))
        machine["gpus"] = 1
        assert [] == doctor.says(labels("gpu", "50"), *asked)
        scaled = {**SCALED, "limits": {"cpu": "9"}}
        assert ["scaler-address"] == checks(doctor.says(scaled, *asked))
    assert ("capacity", "functions.b.limits", "1 x 0.5 core") == (
        *(found["check"], found["where"]),
        found["value"],
    )
    assert (
        "none would fit; of 2 cores and 953.7 MiB, part is reserved by a (2 x 1 core)"
        in found["fix"]
    )
    assert ("capacity", "2 GiB", "at most 953.7 MiB") == (
        *(second["check"], second["value"]),
        second["expected"],
    )


def labels(name: str, text: str) -> dict[str, Any]:
    """Return a function with one setting."""
    return {"labels": {f"com.carpool.{name}": text}}


@pytest.mark.parametrize(("gpus", "found"), [("", ["gpu"]), ("0", ["gpu"]), ("2", [])])
def test_gpu_count_is_read_from_compose_file(doctor: Doctor, gpus: str, found: list[str]) -> None:
    """The option of the provider in the compose file gives its number of GPUs."""
    command = ["carpool", "provider", "docker", *([f"--gpus={gpus}"] if gpus else [])]
    doctor.compose({"provider": {"image": "carpool/provider", "entrypoint": command}})
    assert found == checks(doctor.says({"labels": {"com.carpool.gpu": "40"}}))


def test_reachable_scaler_is_no_finding(doctor: Doctor) -> None:
    """A scaler that listens, or that only the stack's network can reach, is no finding."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        where = f"127.0.0.1:{listener.getsockname()[1]}"
        assert [] == doctor.says({**SCALED, "environment": {"sidecar_scaler": where}})
    (found,) = doctor.says({**SCALED, "environment": {"sidecar_scaler": where}})
    assert ("scaler", where) == (found["check"], found["value"])
    assert "Connection refused" in found["fix"]
    doctor.compose({"scaler": {"image": "carpool/scaler", "profiles": ["scaler"]}})
    named = {"sidecar_scaler": "scaler:8090"}
    assert [] == doctor.says({**SCALED, "environment": named, "secrets": ["carpool-scaler-token"]})


def test_unreachable_address_is_only_finding_of_service(doctor: Doctor) -> None:
    """An address that does not respond is the only finding about its service."""
    with answering({}) as server:
        found = doctor.says({}, "--gateway", server, "--prometheus", server)
    assert ["reachable"] * 2 == checks(found)
    assert "/system/info says 404" == found[0]["fix"]
    found = doctor.says({}, "--gateway", server)
    assert ["reachable"] == checks(found)
    assert "Connection refused" in found[0]["fix"]


@pytest.mark.parametrize(
    ("settings", "setting", "objective"),
    [
        ({"labels": {"com.carpool.slo": "100ms"}}, "labels.com.carpool.slo", "100ms"),
        (
            {"annotations": {"com.carpool.apps": '[{"name": "web", "slo": "200ms"}]'}},
            "annotations.com.carpool.apps",
            "200ms",
        ),
        ({"labels": {"com.carpool.slo": "1s"}}, "", ""),  # raised, but not yet deployed
    ],
)
def test_running_function_slower_than_its_objective_is_a_finding(
    doctor: Doctor, settings: dict[str, Any], setting: str, objective: str
) -> None:
    """The sidecar's own finding counts; functions without instances are not called."""
    listed = [{"name": "fn", "availableReplicas": 1}, {"name": "idle", "availableReplicas": 0}]
    metrics = b"# TYPE x gauge\nbatch_exceeding_objective_seconds 0.31234\nother 1.0\n"
    documents: dict[str, Any] = {
        "/system/info": {"provider": "carpool"},
        "/system/functions": listed,
    }
    documents |= {f"/function/{name}/metrics": metrics for name in ("fn", "idle")}
    with answering(documents) as provider:
        found = doctor.says_of({"fn": settings, "idle": settings}, "--gateway", provider)
    shown = [(each["where"], each["value"], each["expected"]) for each in found]
    expected = "more than 312ms, the execution time of a single request"
    assert ([(f"functions.fn.{setting}", objective, expected)] if setting else []) == shown


def test_crashed_handler_is_a_finding(doctor: Doctor) -> None:
    """How often a running function's handler ended by itself is a finding, with where to look."""
    metrics = b'batch_restarts_total{reason="died"} 2.0\nbatch_restarts_total{reason="hung"} 1.0\n'
    documents: dict[str, Any] = {
        "/system/info": {"provider": "carpool"},
        "/system/functions": [{"name": "fn", "availableReplicas": 1}],
        "/function/fn/metrics": metrics,
    }
    with answering(documents) as provider:
        (found,) = doctor.says_of({"fn": {}}, "--gateway", provider)
    assert ("functions.fn: crashes of its handler", "2") == (found["where"], found["value"])
    assert "its output is in carpool logs fn" == found["fix"]


def test_compose_file_of_repository_has_no_findings(doctor: Doctor) -> None:
    """Carpool's own compose file has no findings for a scaled function."""
    scaled = {
        **SCALED,
        "environment": {"sidecar_scaler": "scaler:8090"},
        "secrets": ["carpool-scaler-token"],
    }
    assert [] == doctor.says(scaled, "--compose", "faas_stack/compose.yaml")


def test_notes_of_running_scaler_are_findings(doctor: Doctor) -> None:
    """Notes of a running scaler of `carpool up` are findings; a stopped one has none."""
    note = "the gateway counts 80/s where the sidecars count 50/s"
    lines = {"functions": [{"name": "fn", "notes": [note]}], "trouble": "no gateway"}
    for folder in (".carpool", ".secrets"):
        (doctor.folder / folder).mkdir()
    (doctor.folder / ".secrets" / "carpool-scaler-token").write_text("t")
    with answering({"/v1/functions": lines}) as scaler:
        (doctor.folder / ".carpool" / "scaler.url").write_text(f"{scaler}\n")
        found = doctor.says(SCALED)
    assert [("running", "functions.fn", note), ("running", "scaler", "no gateway")] == [
        (each["check"], each["where"], each["value"]) for each in found
    ]
    assert [] == doctor.says(SCALED)
