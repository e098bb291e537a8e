"""Requests choose their variant, on the embedded stack, with a registered model."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
import requests

from carpool.http.client import Pool
from tests.live.load import Steady, all_are_answered
from tests.live.stack import BACKGROUND, stack
from tests.live.variants import body, write_function, write_switching, write_variant
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from carpool.variants.variant import Variant
    from tests.live.stack import Stack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

INFER = "/function/rings/v2/models/rings/infer"
NARROW, WIDE = "narrow-plain-t1", "wide-plain-t2"
QUICKLY = """--params '{"calm_s": 2.0, "smoothing_s": 2.0}' --policy infaas --window 3s"""


def ask(running: Stack, path: str = INFER, sent: bytes = b"", **headers: str) -> requests.Response:
    """Send one request; ``accuracy`` is the header X-Carpool-Accuracy, and so on.

    It has no deadline unless it names a latency, because response times are not tested here.
    """
    named = {f"x-carpool-{name}": text for name, text in headers.items()}
    named.update([BACKGROUND])
    return requests.post(running.url + path, data=sent or body(), headers=named, timeout=HANG_S)


def served(answer: requests.Response) -> str:
    """Return the variant that has answered; handler and sidecar must agree on it."""
    assert 200 == answer.status_code, answer.text
    found: dict[str, Any] = answer.json()
    assert found["model_version"] == answer.headers["x-carpool-variant"]
    return str(found["model_version"])


def answers(running: Stack, **headers: str) -> bool:
    """Return whether a request with these requirements is answered by now."""
    return 200 == ask(running, INFER, b"", **headers).status_code


def test_a_request_gets_the_variant_that_it_needs(tmp_path: Path) -> None:
    """Headers, parameters and names choose it; a refusal names the closest variant."""
    variants = write_function(tmp_path)
    narrow, wide = variants[NARROW], variants[WIDE]
    assert narrow.accuracy + 0.05 < wide.accuracy
    least = f"{(narrow.accuracy + wide.accuracy) / 2:.4f}"
    with stack(tmp_path, QUICKLY) as running:
        wait_until(lambda: answers(running), what="an instance")
        assert NARROW == served(ask(running))
        assert NARROW == served(ask(running, accuracy="0.2", latency="1m"))

        early = ask(running, accuracy=least)
        assert early.status_code in {200, 503}  # it may be there by then
        if early.status_code == 503:
            assert f"{WIDE}-b" in early.text
            assert "retry-after" in early.headers
        wait_until(lambda: answers(running, accuracy=least), what="the accurate variant")
        assert WIDE == served(ask(running, accuracy=least))
        sent = body(carpool_accuracy=float(least), carpool_latency="1m")
        assert WIDE == served(ask(running, sent=sent))
        wait_until(
            lambda: "accuracy" in str(running.explain("rings")["rates_rps"]), what="the demand"
        )

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


def test_variant_registered_later_is_served_without_restart(tmp_path: Path) -> None:
    """Requests are refused until a variant is registered, and no other request fails meanwhile."""
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


class Callers:
    """Constant requests that accept any variant, and for a while others that do not.

    Attributes:
        exacting: Whether the others are sent.
        over: Whether to stop.
        answers: Requirements and answer of each request.
    """

    def __init__(self, running: Stack, least: float) -> None:
        self.exacting = self.over = False
        self.answers: list[tuple[float, Any]] = []
        self._pool = Pool(running.url.removeprefix("http://"), max_connections=256)
        self._least = least

    async def call(self) -> None:
        """Send requests until ``over``, and wait for all answers."""
        async with asyncio.TaskGroup() as calls:
            while not self.over:
                calls.create_task(self._call("lax", 0.0))
                if self.exacting:
                    calls.create_task(self._call("exact", self._least))
                await asyncio.sleep(0.04)
        self._pool.close()

    async def _call(self, app: str, accuracy: float) -> None:
        headers = (BACKGROUND, ("x-carpool-app", app))
        answer = await self._pool.request("POST", INFER, headers, body(), HANG_S)
        self.answers.append((accuracy, answer))


async def until_replaced(running: Stack, callers: Callers) -> list[str]:
    """Return the variants that ran alone, in order, while exacting callers came and went."""
    seen: list[str] = []
    for exacting, wanted in ((False, NARROW), (True, WIDE), (False, NARROW)):
        callers.exacting = exacting
        async with asyncio.timeout(HANG_S):
            while seen[-1:] != [wanted]:
                alone = await asyncio.to_thread(only_variant, running)
                if alone not in ("", *seen[-1:]):
                    seen.append(alone)
    callers.over = True
    return seen


def only_variant(running: Stack, function: str = "rings") -> str:
    """Return the variant that is ready; empty if there are several, or none."""
    instances = running.explain(function).get("instances", {})
    there = {name.rpartition("-b")[0] for name, where in instances.items() if where}
    return there.pop() if len(there) == 1 else ""


def test_switching_variants_fails_no_request(tmp_path: Path) -> None:
    """Switch to the accurate variant and back; no answer is below the required accuracy."""
    apps = [{"name": "lax", "slo": "1s"}, {"name": "exact", "slo": "1s", "accuracy": 0.8}]
    variants = write_function(tmp_path, apps=json.dumps(apps))
    narrow, wide = variants[NARROW], variants[WIDE]
    assert narrow.accuracy < 0.8 <= wide.accuracy

    async def play(callers: Callers) -> list[str]:
        _, seen = await asyncio.gather(callers.call(), until_replaced(running, callers))
        return seen

    with stack(tmp_path, QUICKLY) as running:
        wait_until(lambda: 200 == ask(running, app="lax").status_code, what="an instance")
        callers = Callers(running, 0.8)
        assert [NARROW, WIDE, NARROW] == asyncio.run(play(callers))
        assert {200} == {answer.status for _, answer in callers.answers}
        check_accuracy(callers.answers, variants)


def check_accuracy(outcome: list[tuple[float, Any]], variants: dict[str, Variant]) -> None:
    """Check that no answer is below the accuracy that its request required."""
    for least, answer in outcome:
        assert variants[json.loads(answer.body)["model_version"]].accuracy >= least


def test_unserved_variant_starts_despite_held_reductions(tmp_path: Path) -> None:
    """The wide variant starts soon, although reductions are held back for an hour."""
    write_function(tmp_path)
    with stack(tmp_path, f"{QUICKLY} --hold 1h") as running:
        wait_until(lambda: answers(running), what="an instance")
        assert NARROW == served(ask(running))
        early = ask(running, variant=WIDE)
        assert early.status_code in {200, 503}, early.text  # it may be there by then
        if early.status_code == 503:
            assert f"no instance of {WIDE} runs now" in early.text
            assert int(early.headers["retry-after"]) >= 1
        wait_until(lambda: answers(running, variant=WIDE), what="the variant that is named")
        assert WIDE == served(ask(running, variant=WIDE))
        assert NARROW == served(ask(running, variant=NARROW))  # nothing went for it


def test_high_load_uses_large_variant_and_low_load_small_one(tmp_path: Path) -> None:
    """Four requests a second use the small variant, sixty more the large one; all are answered.

    Instances sleep for as long as the variants would take; everything else is real.
    """
    write_switching(tmp_path)
    with stack(tmp_path, QUICKLY) as running:
        low = Steady(running.url, 4)
        until_only(running, "small")
        high = Steady(running.url, 60)
        until_only(running, "large")
        all_are_answered(high.over())
        until_only(running, "small")
        all_are_answered(low.over())


def until_only(running: Stack, variant: str) -> None:
    """Wait until a variant runs alone, and its instances answer."""
    wait_until(lambda: variant == only_variant(running, "echo"), what=f"{variant} alone")
    url = running.url + "/function/echo"
    answer = requests.post(url, data="7", headers=dict([BACKGROUND]), timeout=HANG_S)
    assert variant == answer.headers["x-carpool-variant"]
