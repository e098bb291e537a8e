"""Requests that choose their variant, on the embedded stack, with a registered model."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
import requests

from carpool.http.client import Pool
from tests.live.stack import BACKGROUND, stack
from tests.live.variants import body, write_function, write_variant
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from carpool.variants.variant import Variant
    from tests.live.stack import Stack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

INFER = "/function/rings/v2/models/rings/infer"
NARROW, WIDE = "narrow-plain-t1", "wide-plain-t2"
QUICKLY = """--params '{"calm_s": 2.0, "smoothing_s": 2.0}' --policy infaas --window 3s"""


def ask(running: Stack, path: str = INFER, sent: bytes = b"", **headers: str) -> requests.Response:
    """One request; ``accuracy`` is the header X-Carpool-Accuracy, and so on."""
    named = {f"x-carpool-{name}": text for name, text in headers.items()}
    return requests.post(running.url + path, data=sent or body(), headers=named, timeout=30)


def served(answer: requests.Response) -> str:
    """The variant that has answered: handler and sidecar agree on it."""
    assert 200 == answer.status_code, answer.text
    found: dict[str, Any] = answer.json()
    assert found["model_version"] == answer.headers["x-carpool-variant"]
    return str(found["model_version"])


def answers(running: Stack, **headers: str) -> bool:
    """Whether somebody with such a demand is served by now."""
    return 200 == ask(running, INFER, b"", **headers).status_code


def test_a_request_gets_the_variant_that_it_needs(tmp_path: Path) -> None:
    """By headers, parameters and names; what nobody can give is refused with the closest."""
    variants = write_function(tmp_path)
    narrow, wide = variants[NARROW], variants[WIDE]
    assert narrow.accuracy + 0.05 < wide.accuracy
    least = f"{(narrow.accuracy + wide.accuracy) / 2:.4f}"
    with stack(tmp_path, QUICKLY) as running:
        wait_until(lambda: answers(running), what="an instance")
        assert NARROW == served(ask(running))
        assert NARROW == served(ask(running, accuracy="0.2", latency="1s"))

        early = ask(running, accuracy=least)
        # It may be there by then; what it has just loaded may answer later than the SLO.
        assert early.status_code in {200, 503, 504}
        if early.status_code == 503:
            assert f"{WIDE}-b" in early.text
            assert "retry-after" in early.headers
        wait_until(lambda: answers(running, accuracy=least), what="the accurate variant")
        assert WIDE == served(ask(running, accuracy=least))
        sent = body(carpool_accuracy=float(least), carpool_latency="1s")
        assert WIDE == served(ask(running, sent=sent))
        assert "accuracy" in str(running.explain("rings")["rates_rps"])

        wait_until(lambda: answers(running, variant=NARROW), what="the variant that is named")
        assert NARROW == served(ask(running, variant=NARROW))
        assert NARROW == served(ask(running, INFER.replace("/infer", f"/versions/{NARROW}/infer")))
        wait_until(lambda: answers(running, variant=WIDE), what="the other one")
        assert WIDE == served(ask(running, INFER.replace("models/rings", f"models/{WIDE}")))

        refused = ask(running, accuracy="0.9999")
        assert 422 == refused.status_code
        assert "no variant answers" in refused.text
        assert f"the closest is {WIDE}" in refused.text
        assert f"accuracy {wide.accuracy:.4g}" in refused.text
        assert 404 == ask(running, variant="narow-plain-t1").status_code
        assert 400 == ask(running, accuracy="much").status_code
        assert 422 == ask(running, accuracy=least, variant=NARROW).status_code


def test_a_variant_that_is_registered_later_is_served_without_a_restart(tmp_path: Path) -> None:
    """Refused while nobody has it; served once it is registered, and nobody fails meanwhile."""
    (narrow,) = write_function(tmp_path, "narrow").values()
    least = f"{narrow.accuracy + 0.02:.4f}"
    with stack(tmp_path, QUICKLY) as running:
        wait_until(lambda: answers(running), what="an instance")
        assert 422 == ask(running, accuracy=least).status_code
        write_variant(tmp_path, "wide")

        def followed() -> bool:
            assert served(ask(running)) in {NARROW, WIDE}
            return answers(running, accuracy=least)

        wait_until(followed, what="the new variant")
        assert WIDE == served(ask(running, accuracy=least))
        assert WIDE in str(running.explain("rings")["decisions"])


async def _callers(running: Stack, least: float, over: asyncio.Event) -> list[tuple[float, Any]]:
    """Somebody who takes anything, all the time, and others who do not, for a while."""
    pool = Pool(running.url.removeprefix("http://"), max_connections=256)
    loop, calls, began = asyncio.get_running_loop(), [], asyncio.get_running_loop().time()

    async def call(app: str, accuracy: float) -> tuple[float, Any]:
        headers = (BACKGROUND, ("x-carpool-app", app))
        return accuracy, await pool.request("POST", INFER, headers, body(), 60.0)

    while not over.is_set():
        elapsed_s = loop.time() - began
        calls.append(loop.create_task(call("lax", 0.0)))
        if 3 < elapsed_s < 15:
            calls.append(loop.create_task(call("exact", least)))
        await asyncio.sleep(0.04)
    found = await asyncio.gather(*calls)
    pool.close()
    return found


async def _until_replaced(running: Stack, over: asyncio.Event) -> list[set[str]]:
    """The variants that have been ready, in order, until the first is back; at most 60 s."""
    seen: list[set[str]] = []
    for _ in range(300):
        found = await asyncio.to_thread(running.explain, "rings")
        there = {name.rpartition("-b")[0] for name, where in found["instances"].items() if where}
        if there and (not seen or seen[-1] != there):
            seen.append(there)
        if len(seen) > 1 and there == {NARROW}:
            break
        await asyncio.sleep(0.2)
    over.set()
    return seen


def test_variants_replace_one_another_without_a_failed_request(tmp_path: Path) -> None:
    """Up and down again; nobody gets less than his application asks for, at no moment."""
    apps = [{"name": "lax", "slo": "1s"}, {"name": "exact", "slo": "1s", "accuracy": 0.8}]
    variants = write_function(tmp_path, apps=json.dumps(apps))
    narrow, wide = variants[NARROW], variants[WIDE]
    assert narrow.accuracy < 0.8 <= wide.accuracy

    async def play(running: Stack) -> tuple[list[tuple[float, Any]], list[set[str]]]:
        over = asyncio.Event()
        calls, watched = _callers(running, 0.8, over), _until_replaced(running, over)
        outcome, seen = await asyncio.gather(calls, watched)
        return outcome, seen

    with stack(tmp_path, QUICKLY) as running:
        ready = {"app": "lax"}
        wait_until(lambda: answers(running, **ready), what="an instance")
        outcome, seen = asyncio.run(play(running))
        assert {200} == {answer.status for _, answer in outcome}
        check_accuracy(outcome, variants)
        assert [{NARROW}, {WIDE}, {NARROW}] == [each for each in seen if len(each) == 1]


def check_accuracy(outcome: list[tuple[float, Any]], variants: dict[str, Variant]) -> None:
    """Nobody got less than he asked for."""
    for least, answer in outcome:
        assert variants[json.loads(answer.body)["model_version"]].accuracy >= least
