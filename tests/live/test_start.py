"""``carpool up`` starts a scaler only where it is needed, and says why one cannot start."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from tests.faas_stack.test_up import carpool
from tests.live.stack import write_function

if TYPE_CHECKING:
    from pathlib import Path

_UP = ("up", "--port", "0", "--scaler-port", "0", "--json", "--no-watchdog")


@pytest.mark.slow
def test_invalid_scaler_option_ends_start(tmp_path: Path) -> None:
    """The scaler reports a misspelt policy, and the stack ends with it."""
    write_function(tmp_path)
    with carpool(tmp_path, *_UP, "--scaler", "--policy infles") as up:
        code, said = up.ended()
    assert 1 == code
    assert "did you mean 'infless'" in said
    assert "the scaler does not start" in said


@pytest.mark.slow
def test_single_scaler_option_is_passed_on(tmp_path: Path) -> None:
    """A single option is passed on to the scaler, which refuses its value."""
    write_function(tmp_path)
    with carpool(tmp_path, *_UP, "--scaler", "--interval=soon") as up:
        code, said = up.ended()
    assert 1 == code
    assert "--interval = 'soon': expected a duration" in said


@pytest.mark.slow
def test_port_in_use_is_named_with_its_up_option(tmp_path: Path) -> None:
    """The message has the option of ``carpool up``, which the scaler calls by another name."""
    write_function(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with carpool(tmp_path, "up", "--port", "0", "--scaler-port", port, "--no-watchdog") as up:
            code, said = up.ended()
    assert 1 == code
    assert f"--listen = '127.0.0.1:{port}': expected a free address" in said
    assert "--scaler-port of carpool up" in said


def test_without_a_scaled_function_there_is_no_scaler(tmp_path: Path) -> None:
    """Without a scaling policy there is no scaler process, token or port."""
    write_function(tmp_path, **{"scale.policy": "fixed"})
    with carpool(tmp_path, *_UP) as up:
        assert {"url", "functions", "credentials"} == set(up.result())
    assert not (tmp_path / ".secrets").exists()
    assert not (tmp_path / ".carpool").exists()
