"""Strict reading of the sidecar's environment."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from carpool.errors import ConfigError
from sidecar.options import SCALER_SECRET, Options

if TYPE_CHECKING:
    from pathlib import Path


def test_an_empty_environment_gives_the_defaults() -> None:
    """An empty environment, or one with empty variables, gives the defaults."""
    assert Options() == Options.from_env({"PATH": "/bin"})
    assert Options() == Options.from_env({"sidecar_listen": " ", "exec_timeout": ""})


@pytest.mark.parametrize(
    ("text", "limit_s"), [("20", 20.0), ("1m30s", 90.0), ("0", math.inf), ("0s", math.inf)]
)
def test_time_limits_are_those_of_the_watchdog(text: str, limit_s: float) -> None:
    """Time limits are read as by of-watchdog: plain numbers are seconds, and zero is no limit."""
    options = Options.from_env({"exec_timeout": text, "sidecar_silence_max": text})
    assert (limit_s, limit_s) == (options.exec_timeout_s, options.silence_max_s)


def test_all_problems_are_reported_together() -> None:
    """All problems are reported together, unknown names with the nearest known one."""
    env = {
        "sidecar_listn": "x",
        "sidecar_listen": "8080",
        "sidecar_watchdog": "maybe",
        "sidecar_watchdog_port": "70000",
        "sidecar_upstreams": "a:1, b, c",
        "exec_timeout": "-1s",
        "sidecar_drain_delay": "soon",
        "sidecar_scaler": "scaler:8090",
        "sidecar_plan_folder": "/nowhere",
        "sidecar_admin": "0.0.0.0:8081",
    }
    with pytest.raises(ConfigError) as raised:
        Options.from_env(env)
    found = {(problem.name, problem.value): str(problem) for problem in raised.value.problems}
    assert {
        *(env.keys() - {"sidecar_upstreams", "sidecar_scaler"}),
        *("sidecar_upstreams", "sidecar_function"),
    } == {name for name, _ in found}
    assert ("sidecar_upstreams", "b") in found
    assert ("sidecar_upstreams", "c") in found
    text = str(raised.value)
    assert "did you mean 'sidecar_listen'?" in text
    assert "sidecar_watchdog_port = '70000': expected a whole number from 1 to 65535" in text
    assert "sidecar_function = '': expected the function's name, as there is a scaler" in text
    assert "set sidecar_admin_token" in text


def test_missing_settings_come_from_secrets_and_environment(tmp_path: Path) -> None:
    """Missing settings come from the secrets, OPENFAAS_NAME and $TMPDIR."""
    (tmp_path / SCALER_SECRET).write_text("s3cret\n")
    env = {
        "sidecar_scaler": "unix:/run/scaler",
        "OPENFAAS_NAME": "classify",
        "secret_mount_path": str(tmp_path),
        "sidecar_plan_folder": "tmp",
        "TMPDIR": str(tmp_path),
    }
    options = Options.from_env(env)
    assert ("s3cret", "classify", str(tmp_path)) == (
        options.scaler_token,
        options.function,
        options.plan_folder,
    )
    told = {**env, "sidecar_scaler_token": "own", "sidecar_function": "other"}
    assert ("own", "other") == (
        Options.from_env(told).scaler_token,
        Options.from_env(told).function,
    )
