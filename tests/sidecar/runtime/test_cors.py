"""Cross-origin requests from web pages (CORS)."""

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
    """Send a browser's preflight request."""
    headers = [("origin", origin), *ASKED]
    return await running.pool.request("OPTIONS", path, headers, timeout_s=HANG_S)


def test_only_allowed_origins_get_cors_headers(sidecar: Start) -> None:
    """Only allowed origins get CORS headers, on preflights and all responses, errors included."""

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


def test_wildcard_allows_all_origins(sidecar: Start) -> None:
    """With ``*``, responses allow all origins, even without an Origin header because of caches."""

    async def run() -> None:
        async with sidecar(carpool_cors_origins="*") as running:
            assert b"*" == (await preflight(running, PAGE)).header(ALLOWED)
            assert b"*" == (await running.ask("hello")).header(ALLOWED)

    asyncio.run(run())


def test_no_origin_is_allowed_without_setting(sidecar: Start) -> None:
    """Without the setting no origin is allowed, and `OPTIONS` lists the methods."""

    async def run() -> None:
        async with sidecar() as running:
            asked = await preflight(running, PAGE)
            assert (204, None) == (asked.status, asked.header(ALLOWED))
            assert asked.header(b"allow") is not None
            assert (await running.ask("hello", ("origin", PAGE))).header(ALLOWED) is None

    asyncio.run(run())


def test_origins_are_read_from_an_annotation() -> None:
    """Origins are read from a comma-separated annotation and written back unchanged."""
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
def test_browser_exposes_responses_only_to_allowed_origin(
    sidecar: Start,
    tmp_path: Path,
    allowed: bool,  # noqa: FBT001
) -> None:
    """In a real browser, only a page of an allowed origin reads responses, errors included."""
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
