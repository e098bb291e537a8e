"""Run the clients and load generators of docs/clients.md against a function."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.docs.snippets import take
from tests.faas_stack.test_up import carpool, system
from tests.tools import require_tool
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients page")]

TRIES = 5
CONNECTIONS = 8  # of each load generator
PAGE = (Path(__file__).parents[2] / "docs" / "clients.md").read_text(encoding="utf-8")
_TAKEN = {
    block.text
    for language in ("bash", "python")
    for block in take("docs/clients.md", language=language)
}
BLOCKS = {
    name: (language, text)
    for name, language, text in re.findall(
        r"^## (\w+)\n\n```(\w+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE
    )
    if text in _TAKEN
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Yield the report of ``carpool new net && carpool up``, with a generous objective."""
    folder = tmp_path_factory.mktemp("stack")
    with carpool(folder, "new", "net", "--slo", "60s") as new:
        assert 0 == new.ended()[0], new.said
    with carpool(folder, "up", "--port", "0", "--json", "--no-watchdog") as up:
        yield up.result()


def run(name: str, url: str, folder: Path) -> str:
    """Run a block of the page and return what it prints."""
    language, text = BLOCKS[name]
    assert "http://127.0.0.1:8080" in text
    text = text.replace("http://127.0.0.1:8080", url)
    command = [sys.executable, "-c"] if language == "python" else ["bash", "-euc"]
    done = subprocess.run(
        [*command, text], cwd=folder, capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("client", "printed"),
    [
        ("requests", "64 answers\n"),
        ("httpx", "64 answers\ndict_keys(['predictions'])\n"),
        ("aiohttp", "64 answers\n200\n"),
    ],
)
def test_example_client_prints_number_of_responses(
    client: str, printed: str, stack: dict[str, Any], tmp_path: Path
) -> None:
    """Each example prints the number of responses, which is the number of its requests."""
    assert printed == run(client, stack["url"], tmp_path)


@pytest.mark.parametrize(
    ("tool", "good", "bad"),
    [
        ("ab", r"Complete requests: +(400)\nFailed requests: +0\n", "Non-2xx responses"),
        ("hey", r"\[200\]\t(400) responses", "Error distribution"),
        ("wrk", r"(\d+) requests in ", "Non-2xx|Socket errors"),
        ("locust", r"Aggregated +(\d+) +0\(0\.00%\)", "Error report"),
    ],
)
def test_a_load_generator_reports_no_error(
    tool: str, good: str, bad: str, stack: dict[str, Any], tmp_path: Path
) -> None:
    """The function has answered as many requests as reported, and at most those in flight more."""
    require_tool(tool)
    reported = before = 0
    for _ in range(TRIES):  # on a busy machine, locust may have sent nothing within its seconds
        before = answered(stack)
        printed = run(tool, stack["url"], tmp_path)
        assert not re.search(bad, printed), printed
        found = re.search(good, printed)
        assert found, printed
        if reported := int(found[1]):
            break
    assert 0 < reported <= answered(stack) - before <= reported + CONNECTIONS


def answered(result: dict[str, Any]) -> int:
    """Return the number of requests that the function's sidecar has answered."""
    metrics = system(result, "/function/net/metrics").text
    found = re.search(r'^batch_requests_total\{state="done"\} ([\d.]+)$', metrics, re.MULTILINE)
    assert found, metrics
    return int(float(found[1]))


def test_every_client_except_kserve_is_tested() -> None:
    """Only KServe's client is not, and the page says that it was tried by hand."""
    parts = set(re.findall(r"^## (\w+)$", PAGE, re.MULTILINE))
    assert {"KServe"} == parts - BLOCKS.keys()
