"""The handler's environment is validated strictly."""

from __future__ import annotations

from pathlib import Path

import pytest

from carpool.errors import ConfigError
from watchdog_plugin.settings import HandlerSettings


def test_an_empty_environment_gives_the_defaults() -> None:
    """The defaults are those that the template relies on."""
    settings = HandlerSettings.from_env({"PATH": "/bin"})
    assert "127.0.0.1:5000" == settings.listen
    assert (Path("function"), Path("function/model.onnx")) == (
        settings.function_dir,
        settings.model_path,
    )
    assert (False, 1, 32, 64 << 20) == (
        settings.exit_on_term,
        settings.threads,
        settings.batch_max,
        settings.body_max_bytes,
    )


@pytest.mark.parametrize(("cpu", "threads"), [("0.25", 1), ("1.4", 1), ("2", 2), ("3.6", 3)])
def test_threads_default_to_whole_cores(cpu: str, threads: int) -> None:
    """The default is one thread per whole core and at least one; `handler_threads` overrides it."""
    assert threads == HandlerSettings.from_env({"carpool_cpu": cpu}).threads
    told = {"carpool_cpu": cpu, "handler_threads": "7"}
    assert 7 == HandlerSettings.from_env(told).threads


@pytest.mark.parametrize("text", ["0.0.0.0:80", "[::1]:80", "unix:/run/h.sock"])
def test_tcp_and_unix_addresses_are_accepted(text: str) -> None:
    """TCP and Unix socket addresses are accepted."""
    assert text == HandlerSettings.from_env({"handler_listen": text}).listen


def test_all_faults_are_reported_together() -> None:
    """One error lists unknown names with suggestions and bad values with what was expected."""
    env = {
        "handler_listn": "x",
        "handler_listen": "5000",
        "handler_exit_on_term": "yes",
        "handler_body_max_mib": "0",
        "carpool_batch_max": "many",
    }
    with pytest.raises(ConfigError) as raised:
        HandlerSettings.from_env(env)
    text = str(raised.value)
    assert 5 == len(raised.value.problems)
    assert "did you mean 'handler_listen'?" in text
    assert "handler_exit_on_term = 'yes': expected true or false" in text


def test_variable_lengths_accept_known_names_only() -> None:
    """The names are those of handler.py, and an unknown name gets a suggestion."""
    text = '{"ragged": {"x": 1}}'
    assert {"ragged": {"x": 1}} == HandlerSettings.from_env({"model_ragged": text}).lengths
    for bad in ("{", "5", "[]"):
        with pytest.raises(ConfigError, match=r"model_ragged = .*: expected a JSON object"):
            HandlerSettings.from_env({"model_ragged": bad})
    with pytest.raises(ConfigError, match=r"model_ragged pad_values = .*did you mean 'pad_value'"):
        HandlerSettings.from_env({"model_ragged": '{"ragged": {}, "pad_values": {}}'})
