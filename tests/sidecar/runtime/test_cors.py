"""Web pages of other origins: what their browsers ask, and are told."""

from __future__ import annotations

import asyncio
import functools
import http.server
import threading
from typing import TYPE_CHECKING

import pytest

from carpool.http.client import Pool
from carpool.settings import FunctionSettings
from tests.chromium import page
from tests.ports import free_port
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from carpool.http.client import Response
    from tests.sidecar.runtime.conftest import Sidecar, Start

PAGE = "https://app.example.com"
ALLOWED = b"access-control-allow-origin"
ASKED = (
    ("access-control-request-method", "POST"),
    ("access-control-request-headers", "content-type,x-timeout"),
)


async def preflight(running: Sidecar, origin: str, path: str = "/any") -> Response:
    """A browser's question."""
    headers = [("origin", origin), *ASKED]
    return await running.pool.request("OPTIONS", path, headers, timeout_s=HANG_S)


def test_pages_of_the_origins_may_call(sidecar: Start) -> None:
    """They are told so before and with each answer, errors too; others are not."""

    async def run() -> None:
        async with sidecar(carpool_cors_origins=f"{PAGE}, http://127.0.0.1:3000") as running:
            asked = await preflight(running, PAGE)
            assert (204, PAGE.encode()) == (asked.status, asked.header(ALLOWED))
            names = asked.header(b"access-control-allow-headers")
            assert b"content-type,x-timeout" == names
            assert b"POST" in (asked.header(b"access-control-allow-methods") or b"")
            for word, status in (("hello", 200), ("bad", 422), ("status:503", 503)):
                answer = await running.ask(word, ("origin", PAGE))
                assert (status, PAGE.encode()) == (answer.status, answer.header(ALLOWED))
            refused = await running.ask("x", ("origin", PAGE), ("x-timeout", "never"))
            assert (400, PAGE.encode()) == (refused.status, refused.header(ALLOWED))
            assert b"origin" == refused.header(b"vary")
            other = await preflight(running, "https://evil.example.com")
            assert (204, None) == (other.status, other.header(ALLOWED))
            assert other.header(b"access-control-allow-methods") is None
            answer = await running.ask("hello", ("origin", "https://evil.example.com"))
            assert (200, None) == (answer.status, answer.header(ALLOWED))
            about = await running.pool.request("GET", "/metrics", [("origin", PAGE)])
            assert (200, None) == (about.status, about.header(ALLOWED))
            for path in ("/metrics", "/_/ready"):
                assert (await preflight(running, PAGE, path)).header(ALLOWED) is None
            assert PAGE.encode() == (await preflight(running, PAGE, "/metrics-of")).header(ALLOWED)
            report = await running.pool.request("GET", "/metrics-of", [("origin", PAGE)])
            assert PAGE.encode() == report.header(ALLOWED)
            done = await running.metric('batch_requests_total{state="done"}')
            assert 4 == done  # those that the handler answered: no question was among them

    asyncio.run(run())


def test_all_pages_may_call(sidecar: Start) -> None:
    """Without an origin, too, as a cache may have asked."""

    async def run() -> None:
        async with sidecar(carpool_cors_origins="*") as running:
            assert b"*" == (await preflight(running, PAGE)).header(ALLOWED)
            assert b"*" == (await running.ask("hello")).header(ALLOWED)

    asyncio.run(run())


def test_without_the_setting_no_page_may(sidecar: Start) -> None:
    """`OPTIONS` says what methods there are."""

    async def run() -> None:
        async with sidecar() as running:
            asked = await preflight(running, PAGE)
            assert (204, None) == (asked.status, asked.header(ALLOWED))
            assert asked.header(b"allow") is not None
            assert (await running.ask("hello", ("origin", PAGE))).header(ALLOWED) is None

    asyncio.run(run())


def test_origins_are_read_from_an_annotation() -> None:
    """Separated by commas, and written back alike."""
    text = f"{PAGE}, *"
    settings = FunctionSettings.from_labels({}, {"com.carpool.cors.origins": text})
    assert (PAGE, "*") == settings.cors_origins
    assert settings == FunctionSettings.from_env(settings.to_env())


# What a page of another origin asks: with a preflight and without one.
SCRIPT = """
window.found = [];
for (const options of [
  {method: 'POST', body: '"hello"', headers: {'content-type': 'application/json'}},
  {method: 'POST', body: 'hello'},
  {method: 'POST', body: 'bad'},
]) fetch('http://SIDECAR/', options).then(
  async answer => window.found.push([answer.status, await answer.text()]),
  () => window.found.push([0, 'a network error']));
"""


@pytest.mark.slow
@pytest.mark.xdist_group("live")
@pytest.mark.parametrize("allowed", [True, False])
def test_a_browser_lets_pages_read_what_they_may(
    sidecar: Start,
    tmp_path: Path,
    allowed: bool,  # noqa: FBT001
) -> None:
    """A real one: all answers, errors too, or none."""
    (tmp_path / "page.html").write_text("<!doctype html><title>page</title>")
    listen = f"127.0.0.1:{free_port()}"
    serve = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))

    def read(origin: str) -> list[list[object]]:
        with page(tmp_path / "profile") as tab:
            tab.open(f"{origin}/page.html")
            wait_until(lambda: "page" == tab.value("document.title"), what="the page")
            tab.value(SCRIPT.replace("SIDECAR", listen))
            wait_until(lambda: 3 == tab.value("window.found.length"), what="three answers")
            return sorted(tab.value("window.found"))

    async def run(origin: str) -> None:
        env = {"carpool_cors_origins": origin if allowed else PAGE, "sidecar_listen": listen}
        async with sidecar(ready=False, **env) as running:
            running.pool.close()
            running.pool = Pool(listen)
            await running.until_ready()
            found = await asyncio.to_thread(read, origin)
            statuses = [200, 200, 422] if allowed else [0, 0, 0]
            assert statuses == [status for status, _ in found], found

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as pages:
        thread = threading.Thread(target=pages.serve_forever)
        thread.start()
        try:
            asyncio.run(run(f"http://127.0.0.1:{pages.server_port}"))
        finally:
            pages.shutdown()
            thread.join()
