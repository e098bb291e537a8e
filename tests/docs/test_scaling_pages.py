"""docs/scaling.md and docs/prewarm.md say what the code does."""

from __future__ import annotations

import re
import tomllib
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
import requests

from carpool import plugins
from carpool.prewarm_windows import Windows
from carpool.testing import check_policy
from tests.docs.snippets import take
from tests.faas_stack.plugin_provider import running
from tests.installed import install
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).parents[2] / "docs"
CODE = [block.text for block in take("docs/scaling.md", language="python")]
ENTRY_POINTS = take("docs/scaling.md", language="toml")


@pytest.mark.parametrize(("page", "kind"), [("scaling.md", "scale"), ("prewarm.md", "prewarm")])
def test_first_table_lists_exactly_the_built_in_policies(page: str, kind: plugins.Kind) -> None:
    """The first table is about the policies that there are, and no others."""
    text = (DOCS / page).read_text(encoding="utf-8")
    table = text.partition("## Which one")[2].partition("\n\n**")[0]
    named = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert sorted(plugins.BUILT_IN[kind]) == sorted(named)


@pytest.fixture
def printed(
    monkeypatch: pytest.MonkeyPatch, quick_checks: None, capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    """Run the blocks of Python one after the other as printed, and return what they define."""
    del quick_checks
    monkeypatch.syspath_prepend(DOCS.parent / "examples" / "policy")
    names: dict[str, Any] = {"__name__": __name__}
    for block in CODE:
        exec(compile(block, "scaling.md", "exec"), names)
    assert "Headroom keeps every promise" in capsys.readouterr().out
    return names


def test_example_policies_work(printed: dict[str, Any]) -> None:
    """The batch policy keeps every promise; the prewarm policy restores what it learned."""
    assert "keeps every promise" in str(check_policy(printed["Halves"]))
    policies = [plugins.build(printed["TwiceTheLongest"], {}) for _ in range(2)]
    policies[0].observe(90.0, 0.0)
    policies[1].absorb(policies[0].to_dict())
    assert Windows(0.0, 180.0) == policies[1].windows(0.0)


class _Answer(BaseHTTPRequestHandler):
    """Answers each request."""

    def do_GET(self) -> None:
        """Answer with a short text."""
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"served")


@contextmanager
def answering() -> Iterator[str]:
    """Run a server as a machine at the edge might, and yield its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answer) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
def test_example_backend_serves_calls(tmp_path: Path) -> None:
    """The provider finds the backend by its entry point and passes calls to a running server."""
    (source,) = [block for block in CODE if "class Backend" in block]
    (tmp_path / "edge.py").write_text(source)
    (points,) = [tomllib.loads(each.text) for each in ENTRY_POINTS if "edge:" in each.text]
    ((group, named),) = points["project"]["entry-points"].items()
    install(tmp_path, "edge", group, f"edge = {named['edge']}")
    with answering() as address, running(tmp_path, "edge", {"addresses": address}) as url:
        deployment = {"service": "echo", "image": "any"}
        deployed = requests.post(f"{url}/system/functions", json=deployment, timeout=HANG_S)
        assert 202 == deployed.status_code, deployed.text
        assert "served" == requests.get(f"{url}/function/echo", timeout=HANG_S).text


def test_page_lists_every_entry_point_group() -> None:
    """The page has all groups of entry points that are searched, and no others."""
    tables = [tomllib.loads(block.text)["project"]["entry-points"] for block in ENTRY_POINTS]
    assert sorted(plugins.GROUPS.values()) == sorted(group for table in tables for group in table)


def test_page_shows_short_example_policy() -> None:
    """The page shows the policy that the example installs, in at most 15 lines."""
    block, *_ = CODE
    example = (DOCS.parent / "examples" / "policy" / "headroom.py").read_text(encoding="utf-8")
    assert example.endswith(f"\n\n{block}")
    assert 15 >= sum(bool(line.strip()) for line in block.splitlines())
