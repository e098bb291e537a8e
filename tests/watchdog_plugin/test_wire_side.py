"""The handler's side of the wire format, compared with the golden bytes of both sides."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import TYPE_CHECKING

from carpool import wire
from watchdog_plugin import Item, ItemError, Reply, answers
from watchdog_plugin.batch_function import BatchFunction
from watchdog_plugin.batch_runner import BatchRunner, ModelThread
from watchdog_plugin.reader import Request
from watchdog_plugin.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

GOLDEN = Path(__file__).parents[1] / "contract" / "golden"


class SameThread(ModelThread):
    """Model thread that runs a batch in the calling thread."""

    def call(self, work: Callable[[], None]) -> float:
        work()
        return 0.5


def served(
    handle_batch: Callable[[Sequence[Item]], object], message: bytes
) -> tuple[int, bytes, dict[str, str]]:
    """Return status, body and headers of the response to a POST of ``message``."""
    service = Service()
    service.open(BatchRunner(BatchFunction(handle_batch), SameThread()))
    headers = {"content-type": wire.CONTENT_TYPE}
    response = service(Request("POST", "/", headers, message, keep_alive=True))
    return response.status, bytes(response.body), dict(response.headers)


def test_golden_requests_become_items() -> None:
    """Items have the bodies, paths, headers and deadlines of the message."""
    seen: list[tuple[object, ...]] = []

    def handle_batch(items: Sequence[Item]) -> list[bytes]:
        seen.extend((i.bytes(), i.method, i.path, i.content_type, i.remaining_s) for i in items)
        return [b""] * len(items)

    served(handle_batch, (GOLDEN / "request.bin").read_bytes())
    path = "/v2/models/m/infer"
    expected = [
        (b"{}", "POST", path, "application/json", 0.25),
        (b"", "POST", path, "application/json", math.inf),
        (b"abc", "GET", "/", "", 0.125),
    ]
    assert expected == seen


def test_responses_too_large_together_fail_batch() -> None:
    """The batch gets a 500; one response that is too large alone fails only its item."""
    half = bytes(answers.LARGEST_BYTES // 2 + 1)
    message = wire.encode_request([1, 2], [1.0] * 2, [wire.build_head("GET /", [])] * 2, [b""] * 2)
    status, body, _ = served(lambda items: [half] * len(items), message)
    assert (500, True) == (status, b"handler_answer_max_mib" in body)
    status, body, _ = served(lambda items: [b"small", bytes(2 * len(half))][: len(items)], message)
    assert 200 == status
    assert (200, 500) == wire.decode_answer(body).statuses


def test_decoded_bodies_too_large_together_fail_batch() -> None:
    """The batch gets a 413; in a batch of one, the item gets it."""

    def asked(*sizes: int) -> tuple[int, bytes]:
        count = len(sizes)
        heads = [wire.build_head("POST /", [("content-encoding", "gzip")])] * count
        bodies = [gzip.compress(bytes(size)) for size in sizes]
        ids = list(range(count))
        message = wire.encode_request(ids, [1.0] * count, heads, bodies)
        service = Service(decoded_max_bytes=1000)
        lengths = BatchFunction(lambda items: [len(item.body) for item in items])
        service.open(BatchRunner(lengths, SameThread()))
        headers = {"content-type": wire.CONTENT_TYPE}
        response = service(Request("POST", "/", headers, message, keep_alive=True))
        return response.status, bytes(response.body)

    status, body = asked(600, 600)
    assert (413, True) == (status, b"handler_body_max_mib" in body)
    status, body = asked(400, 600)
    assert (200, (200, 200)) == (status, wire.decode_answer(body).statuses)
    status, body = asked(1001)
    assert (200, (413,)) == (status, wire.decode_answer(body).statuses)


def test_results_become_the_golden_answers() -> None:
    """Responses, with errors among them, equal the golden bytes."""
    json_type = "application/json"
    results = [[1], Reply('{"error":"no"}', 400, json_type), Reply(b"", content_type=json_type)]
    status, body, headers = served(lambda _: results, (GOLDEN / "request.bin").read_bytes())
    assert (200, "0.500000") == (status, headers["x-carpool-exec-seconds"])
    assert (GOLDEN / "answer.bin").read_bytes() == body


def test_item_error_has_head_of_golden_responses() -> None:
    """The error is JSON, like every other error."""
    _, body, _ = served(lambda _: [ItemError("no")] * 3, (GOLDEN / "request.bin").read_bytes())
    golden = wire.decode_answer((GOLDEN / "answer.bin").read_bytes())
    assert golden.heads == wire.decode_answer(body).heads


def test_truncated_message_is_refused() -> None:
    """The status is 400, whatever part is missing."""
    message = (GOLDEN / "request.bin").read_bytes()
    statuses = {served(lambda _: [], message[:size])[0] for size in range(len(message))}
    assert {400} == statuses
