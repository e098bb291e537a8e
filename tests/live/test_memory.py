"""A handler that exceeds its memory limit is killed alone, and callers learn why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import requests

from tests.faas_stack.partition.test_cgroups import needs_v1
from tests.faas_stack.test_up import carpool, system
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), needs_v1]

HANDLER = """\
def handle_batch(items):
    kept = [bytearray(int(item.bytes())) for item in items]
    return [str(len(each)) for each in kept]
"""
_MIB = 2**20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a function that allocates as many bytes as requested, of 192 MiB."""
    (tmp_path / "eat").mkdir()
    (tmp_path / "eat" / "handler.py").write_text(HANDLER)
    function = {
        "lang": "python3-batch",
        "handler": "./eat",
        "image": "eat:latest",
        "limits": {"memory": "192Mi"},
    }
    document = {"provider": {"name": "openfaas"}, "functions": {"eat": function}}
    (tmp_path / "stack.yaml").write_text(json.dumps(document))
    return tmp_path


def test_out_of_memory_kill_of_handler_is_reported(folder: Path) -> None:
    """The function's log and status give the reason; its sidecar and other functions continue."""
    with carpool(folder, "up", "--port", "0", "--json", "--no-watchdog") as up:
        result = up.result()
        url = result["url"]
        assert "1000" == _asked(url)
        eaten = requests.post(f"{url}/function/eat", data=str(400 * _MIB), timeout=HANG_S)
        assert 502 == eaten.status_code
        wait_until(lambda: "1000" == _asked(url), what="the handler again")
        limit = "its limit is com.carpool.memory or limits.memory (192 MiB)"
        said = f"ended with SIGKILL, out of memory; {limit}"
        wait_until(lambda: said in system(result, "/system/logs?name=eat").text, what=said)
        wait_until(
            lambda: (
                "; out of memory "
                in system(result, "/system/function/eat").json().get("partition", "")
            ),
            what="that in its status",
        )


def _asked(url: str) -> str:
    return requests.post(f"{url}/function/eat", data="1000", timeout=HANG_S).text
