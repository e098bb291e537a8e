"""The handler's environment, read strictly."""

from __future__ import annotations

from pathlib import Path

import pytest

from carpool.errors import ConfigError
from watchdog_plugin.settings import HandlerSettings


def test_an_empty_environment_gives_the_defaults() -> None:
    """They are what the template counts on."""
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
def test_whole_cores_are_threads(cpu: str, threads: int) -> None:
    """A thread for each whole core, and one at least; what the user says goes before that."""
    assert threads == HandlerSettings.from_env({"carpool_cpu": cpu}).threads
    told = {"carpool_cpu": cpu, "handler_threads": "7"}
    assert 7 == HandlerSettings.from_env(told).threads


@pytest.mark.parametrize("text", ["0.0.0.0:80", "[::1]:80", "unix:/run/h.sock"])
def test_addresses(text: str) -> None:
    """TCP and Unix sockets."""
    assert text == HandlerSettings.from_env({"handler_listen": text}).listen


def test_everything_wrong_is_told_together() -> None:
    """Unknown names with the nearest known one, bad values with what was expected."""
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


def test_variable_lengths_are_a_json_object_of_known_names() -> None:
    """The names of handler.py; what else is given is told with the nearest."""
    text = '{"ragged": {"x": 1}}'
    assert {"ragged": {"x": 1}} == HandlerSettings.from_env({"model_ragged": text}).lengths
    for bad in ("{", "5", "[]"):
        with pytest.raises(ConfigError, match=r"model_ragged = .*: expected a JSON object"):
            HandlerSettings.from_env({"model_ragged": bad})
    with pytest.raises(ConfigError, match=r"model_ragged pad_values = .*did you mean 'pad_value'"):
        HandlerSettings.from_env({"model_ragged": '{"ragged": {}, "pad_values": {}}'})
