"""Web pages of other origins: what their browsers ask, and are told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from carpool.settings import FunctionSettings
from tests.waiting import HANG_S

if TYPE_CHECKING:
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
