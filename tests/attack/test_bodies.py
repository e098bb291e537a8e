"""Send every body of the table to a real handler, among fifteen good requests."""

from __future__ import annotations

import contextlib
import functools
import json
import math
from typing import TYPE_CHECKING

import pytest

from carpool import wire
from tests.attack.bodies import BODIES, GOOD
from tests.attack.functions import serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.attack.bodies import Body
    from tests.attack.effort import Effort
    from tests.watchdog_plugin.processes import Handler

pytestmark = pytest.mark.xdist_group("bodies")  # one worker starts what they are sent to

_NEIGHBOURS = 15
_AT = 7
_CODECS = ("orjson", "json")
_FAILED = 400
_REASON_BYTES = 1000


@pytest.fixture(scope="module")
def handlers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, str], Handler]]:
    """Yield a function that returns each function's handler, started on its first use."""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def handler(name: str, codec: str) -> Handler:
            folder = tmp_path_factory.mktemp(f"{name}-{codec}")
            return stack.enter_context(serve(name, folder, codec)).wait_ready()

        yield handler


def sent(handler: Handler, body: Body) -> tuple[int, bytes]:
    """What ``body`` gets in the midst of good requests, whose answers are held to what they are."""
    good = [GOOD[body.function][at % len(GOOD[body.function])] for at in range(_NEIGHBOURS)]
    kind = ("content-type", "application/json")
    heads = [wire.build_head(each.line, [kind]) for each in good]
    bodies = [each.body for each in good]
    heads.insert(_AT, wire.build_head(body.line, [kind, *body.headers]))
    bodies.insert(_AT, body.body)
    count = len(bodies)
    message = wire.encode_request(range(count), [math.inf] * count, heads, bodies)
    with handler.connect() as client:
        reply = client.request("POST", "/", message, content_type=wire.CONTENT_TYPE)
    assert 200 == reply.status, reply.body
    columns = wire.decode_answer(reply.body)
    answers = list(zip(columns.statuses, map(bytes, columns.bodies), strict=True))
    status, answer = answers.pop(_AT)
    for each, (its_status, its_answer) in zip(good, answers, strict=True):
        assert 200 == its_status, its_answer
        assert each.answer == numbers(its_answer)
    return status, answer


def numbers(answer: bytes) -> object:
    """Return the first output's data, or the whole JSON of an answer in another form."""
    value = json.loads(answer)
    return value["outputs"][0]["data"] if "outputs" in value else value


@pytest.mark.parametrize("codec", _CODECS)
@pytest.mark.parametrize("name", BODIES)
def test_malformed_body_fails_alone(
    handlers: Callable[[str, str], Handler], effort: Effort, name: str, codec: str
) -> None:
    """It gets the status of the table with a short reason; other requests are not affected."""
    effort.count("bodies amid 15 good requests", 1)
    body = BODIES[name]
    status, answer = sent(handlers(body.function, codec), body)
    assert body.status == status, answer[:500]
    if status >= _FAILED:
        assert json.loads(answer)["error"]
        assert len(answer) < _REASON_BYTES
