"""What `carpool doctor` learns from a compose file, a gateway, a provider, a Prometheus."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

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
    """A server that answers these paths with these documents, as those of others would."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = documents.get(self.path)
            body = json.dumps(known).encode()
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
    """The checks that have found something."""
    return [each["check"] for each in found]


def test_alert_manager_in_the_compose_file(doctor: Doctor) -> None:
    """AlertManager is a fault where functions are scaled, and else none."""
    doctor.compose({"alerts": {"image": "prom/alertmanager:v0.27.0"}})
    (found,) = doctor.says(SCALED)
    assert "alertmanager" == found["check"]
    assert found["where"].endswith("compose.yaml: services.alerts.image")
    assert [] == doctor.says({})


def test_a_service_of_a_profile_counts_where_the_profile_is_on(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What does not start does no harm."""
    doctor.compose({"alerts": {"image": "prom/alertmanager", "profiles": ["alerts"]}})
    assert [] == doctor.says(SCALED)
    monkeypatch.setenv("COMPOSE_PROFILES", "other,alerts")
    assert ["alertmanager"] == checks(doctor.says(SCALED))


def test_alert_manager_that_prometheus_knows(doctor: Doctor) -> None:
    """Prometheus says where it sends its alerts."""
    url = "http://alerts:9093/api/v2/alerts"
    data = {"status": "success", "data": {"activeAlertmanagers": [{"url": url}]}}
    with answering({"/api/v1/alertmanagers": data}) as prometheus:
        (found,) = doctor.says(SCALED, "--prometheus", prometheus)
    assert ("alertmanager", f"AlertManager {url}") == (found["check"], found["where"])
    data["data"] = {"activeAlertmanagers": []}
    with answering({"/api/v1/alertmanagers": data}) as prometheus:
        assert [] == doctor.says(SCALED, "--prometheus", prometheus)


def test_the_gateways_timeouts(doctor: Doctor) -> None:
    """exec_timeout fits under upstream_timeout, and that under the gateway's other times."""
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


def test_a_timeout_that_is_told(doctor: Doctor) -> None:
    """A timeout of the gateway that is given has precedence over the compose file's."""
    slow = {"environment": {"exec_timeout": "90s"}}
    assert [] == doctor.says(slow)
    assert ["gateway-timeout"] == checks(doctor.says(slow, "--ce"))
    assert ["gateway-timeout"] == checks(doctor.says(slow, "--gateway-timeout", "1m29s"))
    assert [] == doctor.says(slow, "--ce", "--gateway-timeout", "90s")


def test_the_bounds_of_the_community_edition(doctor: Doctor) -> None:
    """Five replicas, fifteen functions with the classes among them."""
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


def test_a_gateway_is_asked_what_it_is(doctor: Doctor) -> None:
    """OpenFaaS's gateway wraps its provider's answer; what is deployed there counts too."""
    info = {"provider": {"provider": "faasd", "orchestration": "containerd"}, "version": {}}
    listed = [{"name": f"old{number}"} for number in range(15)]
    with answering({"/system/info": info, "/system/functions": listed}) as gateway:
        scaled = {"labels": {**SCALED["labels"], "com.carpool.gpu": "50"}}
        found = doctor.says(scaled, "--gateway", gateway)
    assert ["scaler-address", "functions", "gpu"] == checks(found)
    assert ("", "17") == (found[0]["value"], found[1]["value"])
    assert "0, as faasd gives functions none" == found[2]["expected"]


def test_a_provider_that_names_the_scaler(doctor: Doctor) -> None:
    """Functions need not say what the provider tells their sidecars; else they have to."""
    info = {"provider": "carpool", "orchestration": "docker", "version": {}}
    for scaler, found in (({}, ["scaler-address"]), ({"scaler": "scaler:8090"}, [])):
        with answering({"/system/info": {**info, **scaler}, "/system/functions": []}) as provider:
            assert found == checks(doctor.says(SCALED, "--gateway", provider))
    for option, missing in ([], True), (["--scaler=scaler:8090"], False):
        command = ["carpool", "provider", "docker", *option]
        doctor.compose({"provider": {"entrypoint": command}, "gateway": GATEWAY})
        assert missing == ("scaler-address" in checks(doctor.says(SCALED)))


def test_carpools_own_provider_has_no_such_bounds(doctor: Doctor) -> None:
    """The provider over containers is no Community Edition, and may have GPUs."""
    info = {"provider": "carpool", "orchestration": "docker", "version": {}}
    labels = {"com.carpool.gpu": "50", "com.openfaas.scale.max": "20"}
    with answering({"/system/info": info, "/system/functions": []}) as provider:
        assert [] == doctor.says({"labels": labels}, "--gateway", provider)
    info["orchestration"] = "process"
    with answering({"/system/info": info, "/system/functions": []}) as provider:
        assert ["gpu"] == checks(doctor.says({"labels": labels}, "--gateway", provider))


def test_functions_of_a_process_provider_share_the_ports_of_its_machine(doctor: Doctor) -> None:
    """Those of containers do not: each has a network of its own."""
    functions = {name: {"environment": {"sidecar_grpc": "0.0.0.0:9000"}} for name in ("a", "b")}
    for kind, found in (("docker", []), ("process", ["grpc-port"])):
        info = {"provider": "carpool", "orchestration": kind}
        with answering({"/system/info": info, "/system/functions": []}) as provider:
            assert found == checks(doctor.says_of(functions, "--gateway", provider))


def test_a_provider_that_says_what_it_has(doctor: Doctor) -> None:
    """Limits are held against its machine, as the provider will; so are GPUs."""
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
    assert ("room", "functions.b.limits", "1 x 0.5 core") == (
        *(found["check"], found["where"]),
        found["value"],
    )
    assert (
        "none would fit; of 2 cores and 953.7 MiB, part is reserved by a (2 x 1 core)"
        in found["mend"]
    )
    assert ("room", "2 GiB", "at most 953.7 MiB") == (
        *(second["check"], second["value"]),
        second["expected"],
    )


def labels(name: str, text: str) -> dict[str, Any]:
    """A function with one setting."""
    return {"labels": {f"com.carpool.{name}": text}}


@pytest.mark.parametrize(("gpus", "found"), [("", ["gpu"]), ("0", ["gpu"]), ("2", [])])
def test_gpus_of_the_compose_files_provider(doctor: Doctor, gpus: str, found: list[str]) -> None:
    """The provider's option says how many it has."""
    command = ["carpool", "provider", "docker", *([f"--gpus={gpus}"] if gpus else [])]
    doctor.compose({"provider": {"image": "carpool/provider", "entrypoint": command}})
    assert found == checks(doctor.says({"labels": {"com.carpool.gpu": "40"}}))


def test_a_scaler_that_answers(doctor: Doctor) -> None:
    """Where something listens nothing is found, nor where only the stack's network can tell."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        where = f"127.0.0.1:{listener.getsockname()[1]}"
        assert [] == doctor.says({**SCALED, "environment": {"sidecar_scaler": where}})
    (found,) = doctor.says({**SCALED, "environment": {"sidecar_scaler": where}})
    assert ("scaler", where) == (found["check"], found["value"])
    assert "Connection refused" in found["mend"]
    doctor.compose({"scaler": {"image": "carpool/scaler", "profiles": ["scaler"]}})
    named = {"sidecar_scaler": "scaler:8090"}
    assert [] == doctor.says({**SCALED, "environment": named, "secrets": ["carpool-scaler-token"]})


def test_nothing_listens(doctor: Doctor) -> None:
    """What was named and does not answer is a finding, and no more is concluded."""
    with answering({}) as server:
        found = doctor.says({}, "--gateway", server, "--prometheus", server)
    assert ["reachable"] * 2 == checks(found)
    assert "/system/info says 404" == found[0]["mend"]
    found = doctor.says({}, "--gateway", server)
    assert ["reachable"] == checks(found)
    assert "Connection refused" in found[0]["mend"]


def test_the_stack_of_this_repository_is_well(doctor: Doctor) -> None:
    """Carpool's own compose file finds nothing wrong with a function that is scaled in it."""
    scaled = {
        **SCALED,
        "environment": {"sidecar_scaler": "scaler:8090"},
        "secrets": ["carpool-scaler-token"],
    }
    assert [] == doctor.says(scaled, "--compose", "faas_stack/compose.yaml")


def test_what_the_running_scaler_complains_of(doctor: Doctor) -> None:
    """`carpool up` leaves in the folder where its scaler is; one that has ended says nothing."""
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
