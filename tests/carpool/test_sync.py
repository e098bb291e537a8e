"""The messages between sidecars and the scaler: reading accepts exactly what writing produces."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from carpool.errors import ConfigError
from carpool.plan import InstanceClass, Plan, Route
from carpool.sync import (
    Announcement,
    AppReport,
    ClassReport,
    FrontReport,
    InstanceReport,
    SyncAnswer,
    proof,
    read_message,
)

_APP = {"name": "web", "arrivals": 1}
REPORT = FrontReport(
    "classify",
    "a" * 16,
    7,
    "e1:2:3",
    4,
    0.5,
    None,
    3,
    starving=True,
    apps=(AppReport("web", 5),),
    classes=(ClassReport("b4-c1", 2, 5, 0.25, 0.01, 0.002),),
    instances=(InstanceReport("a:80", "b4-c1", up=True, in_flight=1, idle_s=0.0, item_count=0),),
    idle={3: 1},
    outcomes={"done": 5},
    latency={40: 4, 51: 1},
    term=2**41,
)
ANNOUNCEMENT = Announcement("classify", "b" * 16, 1, "b4-c1", "unix:/run/s", "ready", 1.5, "")
PLAN = Plan(
    "classify",
    3,
    "infless",
    (InstanceClass("b4-c1", cpu=1, batch_size=4, replicas=2),),
    (Route("*", {"b4-c1": 1.0}, 0.01),),
)


@pytest.mark.parametrize(
    "message",
    [
        REPORT,
        ANNOUNCEMENT,
        Announcement("f", "b" * 16, 1, "b4-c1", "unix:/tmp/my files/s", "ready", 1.5, ""),
    ],
    ids=["report", "announcement", "address with a space"],
)
def test_messages_round_trip(message: FrontReport | Announcement) -> None:
    """Both kinds of message are recognised and read as written."""
    assert message == read_message(message.to_json())


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        ({"sequence": 0}, "sequence"),
        ({"sequence": 1.5}, "sequence"),
        ({"sender": "short"}, "sender"),
        ({"function": "No Name"}, "function"),
        ({"queued": -1}, "queued"),
        ({"term": 2**53}, "term"),
        ({"starving": 1}, "starving"),
        ({"period_s": float("nan")}, "body"),
        ({"state": "ready"}, "state = 'ready': expected no such field"),
        ({"idle": {"999": 1}}, "idle = \"{'999': 1}\": expected int <= 221 as each key"),
        ({"idle": {"-1": 1}}, "idle"),
        ({"idle": {"01": 1}}, "idle"),
        ({"idle": {"x": 1}}, "idle"),
        ({"idle": {"1": 0}}, "idle[...] = \"{'1': 0}\": expected int >= 1"),
        ({"idle": [1]}, "idle = '[1]': expected object"),
        ({"apps": [{"name": "web"}]}, "apps[0].arrivals is missing: expected a value"),
        ({"apps": [{"name": "web", "arrivals": "5"}]}, "apps[0].arrivals = '5': expected int"),
        (
            {"classes": [{"name": "b4-c1", "batches": 1}]},
            "classes[0].item_count is missing: expected a value",
        ),
        ({"apps": [_APP, _APP]}, "apps[1].name = 'web': expected another name than apps[0]"),
        ({"apps": [{"name": "a\x1b[2J", "arrivals": 1}]}, "apps[0].name"),
        ({"outcomes": {"lost": 1}}, "outcomes"),
        ({"extra": 1}, "extra"),
    ],
)
def test_malformed_report_error_names_the_fault(changed: dict[str, Any], names: str) -> None:
    """The error names a wrong value, a missing key or an unknown key."""
    data = {**json.loads(REPORT.to_json()), **changed}
    with pytest.raises(ConfigError) as raised:
        read_message(json.dumps(data).encode())
    assert names in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b"\xff",
        b"{}",
        b'{"apps":' + b"[" * 100_000,
        b'{"function":"\xff"}',
    ],
)
def test_text_that_is_not_a_message_is_refused(text: bytes) -> None:
    """Text that is not a message raises `ConfigError` and no other error."""
    with pytest.raises(ConfigError):
        read_message(text)


def test_answer_round_trips() -> None:
    """An answer's interval, plan and addresses are read as written."""
    answer = SyncAnswer(0.5, "e1:3:1", PLAN, {"b4-c1": ("unix:/run/s",)})
    assert answer == SyncAnswer.from_json(answer.to_json())
    assert SyncAnswer(2.0) == SyncAnswer.from_json(SyncAnswer(2.0).to_json())


def test_a_plan_may_be_computed_with_numpy() -> None:
    """NumPy numbers and texts in a plan are read as Python's own."""
    route = Route("*", {"b4-c1": np.float64(1.0)}, np.float64(0.01))
    plan = replace(PLAN, routes=(route,), explain=(np.str_("why"),))
    answer = SyncAnswer(0.5, "e1:3:1", plan, {"b4-c1": ("unix:/run/s",)})
    assert answer == SyncAnswer.from_json(answer.to_json())


def test_an_answer_with_an_ill_formed_plan_is_refused() -> None:
    """A plan in an answer is validated like any other."""
    data = json.loads(SyncAnswer(0.5, "e1:3:1", PLAN).to_json())
    data["plan"]["classes"][0]["cpu"] = -1
    with pytest.raises(ConfigError, match=r"classes\[0\].cpu"):
        SyncAnswer.from_json(json.dumps(data).encode())


def test_proof_is_valid_for_one_message_and_token() -> None:
    """A proof differs for every other message, sender, number or token."""
    shown = proof(b"token", "a" * 16, 7, b"{}")
    others = [
        proof(b"Token", "a" * 16, 7, b"{}"),
        proof(b"token", "b" * 16, 7, b"{}"),
        proof(b"token", "a" * 16, 8, b"{}"),
        proof(b"token", "a" * 16, 7, b"{} "),
    ]
    assert shown == proof(b"token", "a" * 16, 7, b"{}")
    assert 5 == len({shown, *others})
