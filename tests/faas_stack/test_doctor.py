"""Tests of `carpool doctor` on stack files: each check finds its own fault and no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from carpool.__main__ import main as carpool
from carpool.errors import ConfigError
from faas_stack.doctor.command import main
from faas_stack.doctor.rules import CASE, FUNCTION, READING, promises
from tests.faas_stack.doctor_case import Doctor

ROOT = Path(__file__).resolve().parents[2]
SLO = {"com.carpool.slo": "200ms"}
VR, WEB = '{"name": "vr", "slo": "50ms"}', '{"name": "web", "slo": "1s"}'
INFLESS = {"com.carpool.scale.policy": "infless"}
FIXED = {"com.carpool.batch.policy": "fixed"}


@pytest.fixture
def doctor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """A doctor with a folder for stack files."""
    return Doctor(tmp_path, capsys)


def function(
    labels: dict[str, str] | None = None, env: dict[str, str] | None = None, **more: Any
) -> dict[str, Any]:
    """Return a function of a stack file."""
    return {"labels": labels or {}, "environment": env or {}, **more}


BAD: dict[str, tuple[str, dict[str, Any], str, str, str]] = {
    "a window of the parameters": (
        "window",
        function(SLO | FIXED, annotations={"com.carpool.batch.params": '{"wait_s": 0.3}'}),
        "annotations.com.carpool.batch.params",
        "300ms",
        "shorter than com.carpool.slo, which is 200ms",
    ),
    "a default window": (
        "window",
        function({"com.carpool.slo": "5ms"} | FIXED),
        "labels.com.carpool.batch.params",
        "10ms",
        "shorter than com.carpool.slo, which is 5ms",
    ),
    "an objective beyond the default exec_timeout": (
        "exec-timeout",
        function({"com.carpool.slo": "1m"}),
        "environment.exec_timeout",
        "30s",
        "at least com.carpool.slo, which is 1m",
    ),
    "an application's objective": (
        "exec-timeout",
        function(
            env={"exec_timeout": "2"},
            annotations={"com.carpool.apps": '[{"name": "web", "slo": "3s"}]'},
        ),
        "environment.exec_timeout",
        "2s",
        "at least com.carpool.apps[web], which is 3s",
    ),
    "a short write_timeout": (
        "write-timeout",
        function(env={"write_timeout": "10s"}),
        "environment.write_timeout",
        "10s",
        "at least exec_timeout, which is 30s",
    ),
    "a time that is not read": (
        "watchdog-times",
        function(env={"read_timeout": "30 sec"}),
        "environment.read_timeout",
        "30 sec",
        "a duration above zero",
    ),
    "a drain that never ends": (
        "watchdog-times",
        function(env={"healthcheck_interval": "30s"}),
        "environment.healthcheck_interval",
        "30s",
        "less than the 10s",
    ),
    "one batch at a time": (
        "max-inflight",
        function(env={"max_inflight": "1"}),
        "environment.max_inflight",
        "1",
        "at least 2",
    ),
    "lazy execution": (
        "max-inflight",
        function(
            {"com.carpool.executor": "lazy", "com.carpool.batch.max": "8"},
            {"max_inflight": "8"},
        ),
        "environment.max_inflight",
        "8",
        "at least 12",
    ),
    "a limit that is not read": (
        "max-inflight",
        function(env={"max_inflight": "many"}),
        "environment.max_inflight",
        "many",
        "a whole number",
    ),
    "what the sidecar sets": (
        "watchdog",
        function(env={"mode": "streaming"}),
        "environment.mode",
        "streaming",
        "no value: the sidecar sets it",
    ),
    "a lock that is never made": (
        "watchdog",
        function(env={"suppress_lock": "true"}),
        "environment.suppress_lock",
        "true",
        "false",
    ),
    "a log that ends": (
        "watchdog",
        function(env={"log_buffer_size": "65536"}),
        "environment.log_buffer_size",
        "65536",
        "-1",
    ),
    "a misspelt option of the sidecar": (
        "options",
        function(env={"sidecar_drain_dealy": "1s"}),
        "environment.sidecar_drain_dealy",
        "1s",
        "did you mean 'sidecar_drain_delay'?",
    ),
    "a bad option of the handler": (
        "options",
        function(env={"handler_body_max_mib": "much"}),
        "environment.handler_body_max_mib",
        "much",
        "a whole number",
    ),
    "a misspelt prefix": (
        "variables",
        function(env={"carpol_slo": "1s"}),
        "environment.carpol_slo",
        "1s",
        "did you mean 'carpool_slo'?",
    ),
    "capital letters": (
        "variables",
        function(env={"SIDECAR_LISTEN": "0.0.0.0:8080"}),
        "environment.SIDECAR_LISTEN",
        "0.0.0.0:8080",
        "did you mean 'sidecar_listen'?",
    ),
    "a misspelt variable of the watchdog": (
        "variables",
        function(env={"exec_timout": "9s"}),
        "environment.exec_timout",
        "9s",
        "did you mean 'exec_timeout'?",
    ),
    "a misspelt prefix of a label": (
        "labels",
        function({"com.carpol.slo": "200ms"}),
        "labels.com.carpol.slo",
        "200ms",
        "did you mean 'com.carpool.slo'?",
    ),
    "half a prefix": (
        "labels",
        function(annotations={"carpool.slo": "200ms"}),
        "annotations.carpool.slo",
        "200ms",
        "did you mean 'com.carpool.slo'?",
    ),
    "a misspelt label of OpenFaaS": (
        "labels",
        function({"com.openfaas.scale.mim": "2"}),
        "labels.com.openfaas.scale.mim",
        "2",
        "did you mean 'com.openfaas.scale.min'?",
    ),
    "a label of the commercial scaler": (
        "commercial-labels",
        function({"com.openfaas.scale.zero": "true"}),
        "labels.com.openfaas.scale.zero",
        "true",
        'com.carpool.scale.min: "0"',
    ),
    "a factor that breaks calls": (
        "scale-factor",
        function({"com.openfaas.scale.factor": "0"}),
        "labels.com.openfaas.scale.factor",
        "0",
        "from 1 to 100",
    ),
    "bounds the wrong way round": (
        "scale-bounds",
        function({"com.openfaas.scale.min": "4", "com.openfaas.scale.max": "2"}),
        "labels.com.openfaas.scale.min",
        "4",
        "at most com.openfaas.scale.max, which is 2",
    ),
    "bounds given twice": (
        "two-bounds",
        function({"com.openfaas.scale.max": "4", "com.carpool.scale.max": "2"}),
        "labels.com.openfaas.scale.max",
        "4",
        "'2', as com.carpool.scale.max says",
    ),
    "a policy without its objective": (
        "objective",
        function(INFLESS),
        "labels.com.carpool.scale.policy",
        "infless",
        "com.carpool.slo, such as 200ms",
    ),
    "a batch policy that plans replace": (
        "batch-policy",
        function(SLO | INFLESS | {"com.carpool.batch.policy": "adaptive"}),
        "labels.com.carpool.batch.policy",
        "adaptive",
        "the plans of infless",
    ),
    "a front that is not scaled": (
        "front",
        function(SLO, {"sidecar_scaler": "unix:/nobody/is/here", "OPENFAAS_NAME": "fn"}),
        "environment.sidecar_scaler",
        "unix:/nobody/is/here",
        "other than fixed",
    ),
    "a scaler without its token": (
        "token",
        function(SLO | INFLESS, {"sidecar_scaler": "127x.invalid:8090"}, secrets=["other"]),
        "secrets",
        "other",
        "carpool-scaler-token",
    ),
    "a scaler that is not there": (
        "scaler",
        function(SLO | INFLESS, {"sidecar_scaler": "unix:/nobody/is/here"}),
        "environment.sidecar_scaler",
        "unix:/nobody/is/here",
        "a scaler that answers",
    ),
    "a setting out of range": (
        READING,
        function({"com.carpool.slo": "soon"}),
        "com.carpool.slo",
        "soon",
        "a duration above zero",
    ),
    "scale.min over scale.max": (
        READING,
        function({"com.carpool.scale.min": "4", "com.carpool.scale.max": "2"}),
        "com.carpool.scale.min",
        "4",
        "at most scale.max, which is 2",
    ),
    "a misspelt setting": (
        READING,
        function({"com.carpool.batch.maks": "4"}),
        "com.carpool.batch.maks",
        "4",
        "did you mean 'com.carpool.batch.max'?",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_finding_has_check_place_value_and_expectation(doctor: Doctor, name: str) -> None:
    """A finding has its check, its place, the value and what is expected."""
    check, given, where, value, said = BAD[name]
    found = [each for each in doctor.says(given) if each["check"] == check]
    assert 1 == len(found), found
    assert found[0]["where"].endswith(where)
    assert value == found[0]["value"]
    assert said in f"{found[0]['expected']}; {found[0]['fix']}"


GOOD: dict[str, dict[str, Any]] = {
    "nothing said": function(),
    "an ordinary function": function(
        SLO | FIXED | {"com.carpool.batch.wait": "10ms", "topic": "cats", "team": "vision"},
        {"exec_timeout": "5s", "write_timeout": "5s", "max_inflight": "2", "LOG_LEVEL": "debug"},
    ),
    "one that is scaled": function(SLO | INFLESS),
    "by load alone": function({"com.carpool.scale.policy": "openfaas"}),
    "OpenFaaS's labels": function({"com.openfaas.scale.min": "1", "com.openfaas.scale.max": "3"}),
    "applications in place of one objective": function(
        INFLESS, annotations={"com.carpool.apps": '[{"name": "web", "slo": "3s"}]'}
    ),
    "a folder of the container": function(env={"sidecar_plan_folder": "/var/lib/plans"}),
    "a custom policy": function(SLO | {"com.carpool.batch.policy": "mine:Policy"}),
    "no limit of calls": function(env={"max_inflight": "0"}),
}


@pytest.mark.parametrize("name", GOOD)
def test_function_without_faults_has_no_findings(doctor: Doctor, name: str) -> None:
    """A function without faults has no findings."""
    assert [] == doctor.says(GOOD[name])


def test_every_check_has_a_fault_that_it_finds() -> None:
    """Every check of a function has a fault here that it finds, or a test of its own."""
    seen = {check for check, *_ in BAD.values()}
    assert set() == set(FUNCTION) - seen - {"warm-up"} - {"executor", "stages"}  # with folders
    assert "" not in promises().values()
    assert [READING, *FUNCTION, *CASE] == list(promises())


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def handle_batch(items):\n    return items\n", 1),
        ("example = b'x'\ndef handle_batch(items):\n    return items\n", 0),
        ("from other import example, handle_batch\n", 0),
        ("def preprocess(item):\n    return item\n", 0),
        ("this is no Python", 0),
    ],
)
def test_handler_without_warm_up_example_is_found(doctor: Doctor, code: str, found: int) -> None:
    """A handle_batch with an objective needs an example for its warm-up."""
    handler = doctor.folder / "fn"
    handler.mkdir()
    (handler / "handler.py").write_text(code)
    text = (
        "provider: {name: openfaas}\nfunctions: {fn: {lang: python3-batch, handler: ./fn, "
        "image: fn, labels: {com.carpool.slo: 1s}}}\n"
    )
    checks = [each["check"] for each in doctor.says_of_text(text)]
    assert found == checks.count("warm-up")


@pytest.mark.parametrize(
    ("files", "environment", "found"),
    [
        ({}, "", 1),
        ({"handler.py": "def preprocess(item):\n    return item\n"}, "", 1),
        ({"handler.py": "def preprocess(item):\n    return item\n"}, "model_path: /m.onnx", 0),
        ({"handler.py": "def handle_batch(items):\n    return items\n"}, "", 0),
        ({"handler.py": "async def stream(item):\n    yield b''\n"}, "", 0),
        ({"handler.py": "if True:\n    def handle_batch(items):\n        return items\n"}, "", 0),
        ({"handler.py": "from own import *\n"}, "", 0),
        ({"handler.py": "this is no Python"}, "", 0),
        ({"example.onnx": ""}, "", 1),
        ({"model.onnx": ""}, "", 0),
        ({"variants/web/variants.json": "{}"}, "", 0),
        ({"models/one/model.onnx": ""}, "", 0),
    ],
)
def test_missing_model_is_found(
    doctor: Doctor, files: dict[str, str], environment: str, found: int
) -> None:
    """A function without its model is found before `carpool up` waits for it."""
    for name, text in {".keep": "", **files}.items():
        path = doctor.folder / "fn" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    text = (
        "provider: {name: openfaas}\nfunctions: {fn: {lang: python3-onnx-batch, handler: ./fn, "
        f"image: fn, environment: {{{environment}}}}}}}\n"
    )
    findings = doctor.says_of_text(text)
    (doctor.folder / "model.onnx").touch()
    assert [] == doctor.says_of_text(f"{text}configuration: {{copy: [./model.onnx]}}\n")
    assert ["model"] * found == [each["check"] for each in findings]
    assert all(each["where"].endswith("fn/model.onnx") for each in findings)


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ("127.0.0.1:9000", "localhost:9000", ["two"]),
        ("127.0.0.1:9000", "127.0.0.1:9001", []),
        ("127.0.0.1:0", "127.0.0.1:0", []),
        ("0.0.0.0:9000", "0.0.0.0:9000", []),  # of containers, which have a network each
        ("unix:/tmp/one.sock", "unix:/tmp/two.sock", []),
    ],
)
def test_shared_grpc_port_is_found(
    doctor: Doctor, first: str, second: str, found: list[str]
) -> None:
    """Functions with the same gRPC port are found, as on one machine they would share calls."""
    functions = {"one": function(env={"sidecar_grpc": first})}
    functions["two"] = function(env={"sidecar_grpc": second})
    findings = doctor.says_of(functions)
    assert [("grpc-port", f"functions.{name}.environment.sidecar_grpc") for name in found] == [
        (each["check"], each["where"]) for each in findings
    ]
    assert all("that of one" in each["expected"] for each in findings)


@pytest.mark.parametrize(
    ("name", "own", "others", "found"),
    [
        ("apps", f"[{VR}, {WEB}]", f"[{WEB}]", 1),
        ("apps", f"[{VR}]", f"[{WEB}, {VR}]", 0),
        ("apps", f"[{VR}]", "", 0),  # without applications, requests may name any
        ("cors.origins", "https://a.example", "", 1),
        ("cors.origins", "https://a.example, https://b.example", "https://b.example", 1),
        ("cors.origins", "https://a.example", "*", 0),
        ("cors.origins", "*", "https://a.example", 1),
        ("cors.origins", "", "https://a.example", 0),
    ],
)
def test_canary_that_lacks_the_functions_callers_is_found(
    doctor: Doctor, name: str, own: str, others: str, found: int
) -> None:
    """A canary that lacks an application or origin of its function is found: callers would fail."""
    key = f"com.carpool.{name}"
    one = function({"com.carpool.canary": "two=5%"}, annotations={key: own} if own else {})
    two = function(annotations={key: others} if others else {})
    findings = doctor.says_of({"one": one, "two": two})
    assert ["canary-callers"] * found == [each["check"] for each in findings]
    assert all(f"functions.two.annotations.{key}" == each["where"] for each in findings)


def test_all_findings_are_reported_together(doctor: Doctor) -> None:
    """Problems of reading hide no other findings, nor do those of other functions."""
    found = doctor.says_of(
        {
            "one": {"labels": {"com.carpool.slo": "soon"}, "environment": {"mode": "http"}},
            "two": {"environment": {"max_inflight": "1"}, "limitz": {}},
        }
    )
    assert {READING, "watchdog", "max-inflight"} == {each["check"] for each in found}
    assert 4 == len(found)


@pytest.mark.parametrize(
    "arguments",
    [
        ["-f", "nowhere.yaml"],
        ["--gateway", "localhost:8080"],
        ["--gateway-timeout", "soon"],
        ["--compose", "nowhere.yaml"],
    ],
)
def test_missing_file_or_invalid_option_is_an_error(
    doctor: Doctor, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing file or an invalid option is an error and not a finding."""
    doctor.says({})
    monkeypatch.chdir(doctor.folder)
    with pytest.raises(ConfigError):
        main(arguments)


def test_stack_file_that_is_not_yaml_is_an_error(doctor: Doctor) -> None:
    """A stack file that is not YAML is an error."""
    with pytest.raises(ConfigError):
        doctor.says_of_text("functions: [")


def test_command_prints_a_line_per_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`carpool doctor` prints a line per finding and exits with 1, 0 or 2."""
    path = tmp_path / "stack.yaml"
    head = "provider: {name: openfaas}\nfunctions: {fn: {skip_build: true, image: fn"
    path.write_text(head + ", environment: {max_inflight: 1}}}\n")
    assert 1 == carpool(["doctor", "-f", str(path)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("functions.fn.environment.max_inflight = '1': expected 0, or at ")
    assert lines[0].endswith("[max-inflight]")
    assert f"{path}: 1 finding" == lines[1]
    path.write_text(head + "}}\n")
    assert 0 == carpool(["doctor", "-f", str(path)])
    assert "nothing found" in capsys.readouterr().out
    assert 2 == carpool(["doctor", "-f", str(tmp_path / "none.yaml")])
    assert "an existing file" in capsys.readouterr().err


def test_documented_line_is_what_doctor_prints(
    doctor: Doctor, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line in docs/doctor.md is what the doctor prints."""
    page = (ROOT / "docs" / "doctor.md").read_text()
    labels = {"com.carpool.slo": "8s"}
    doctor.says_of({"classify": function(labels, {"exec_timeout": "5s"})})
    main(["-f", str(doctor.folder / "stack.yaml")])
    assert f"    {capsys.readouterr().out.splitlines()[0]}\n" in page


def test_json_names_every_check(doctor: Doctor, capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON document lists all checks of a version."""
    doctor.says({})
    main(["-f", str(doctor.folder / "stack.yaml"), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert list(promises()) == document["checks"]
    assert [] == document["findings"]
