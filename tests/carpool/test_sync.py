"""The messages between sidecars and the scaler: what is written is read, nothing else is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

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

_APP = {"name": "web", "arrivals": 1, "gaps": {}}
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
    apps=(AppReport("web", 5, {12: 4}),),
    classes=(ClassReport("b4-c1", 2, 5, 0.25, 0.01, 0.002),),
    instances=(InstanceReport("a:80", "b4-c1", up=True, in_flight=1, idle_s=0.0, item_count=0),),
    idle={3: 1},
    fates={"done": 5},
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


@pytest.mark.parametrize("message", [REPORT, ANNOUNCEMENT], ids=["report", "announcement"])
def test_a_message_arrives_as_it_was(message: FrontReport | Announcement) -> None:
    """Both kinds of message are told apart and read back."""
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
        ({"apps": [{"name": "web"}]}, "apps[0].arrivals = '': expected a value; it is missing"),
        ({"apps": [{"name": "web", "arrivals": "5"}]}, "apps[0].arrivals = '5': expected int"),
        ({"apps": [_APP, _APP]}, "apps[1].name = 'web': expected another name than apps[0]"),
        ({"extra": 1}, "extra"),
    ],
)
def test_an_ill_formed_report_says_what_is_wrong(changed: dict[str, Any], names: str) -> None:
    """A wrong value, a missing and an unknown key are each named."""
    data = {**json.loads(REPORT.to_json()), **changed}
    with pytest.raises(ConfigError) as raised:
        read_message(json.dumps(data).encode())
    assert names in str(raised.value)


def test_a_front_of_before_there_were_terms_is_read() -> None:
    """It says nothing of the term of its plan, nor of a surge."""
    data = json.loads(REPORT.to_json())
    del data["term"], data["surging"]
    assert structs.replace(REPORT, term=0) == read_message(json.dumps(data).encode())


def test_a_front_of_before_items_were_called_so_is_read() -> None:
    """It counts them as ``seats``; what is made of that says ``item_count`` alone."""
    data = json.loads(REPORT.to_json())
    data["instances"][0] |= {"batches": 3, "item_count": 7}
    expected = read_message(json.dumps(data).encode())
    for each in (*data["classes"], *data["instances"]):
        each["seats"] = each.pop("item_count")
    assert expected == read_message(json.dumps(data).encode())
    assert b"seats" not in expected.to_json()


@pytest.mark.parametrize("part", ["classes", "instances"])
def test_items_are_counted_once(part: str) -> None:
    """Under neither name, or both with other numbers, a report is refused; alike it is not."""
    data = json.loads(REPORT.to_json())
    expected = read_message(json.dumps(data).encode())
    one = data[part][0]
    one["seats"] = one["item_count"]
    assert expected == read_message(json.dumps(data).encode())
    one["seats"] += 1
    with pytest.raises(ConfigError, match=rf"{part}\[0\].*: expected two equal numbers"):
        read_message(json.dumps(data).encode())
    del one["seats"], one["item_count"]
    with pytest.raises(ConfigError, match=rf"{part}\[0\].*: expected item_count, or seats"):
        read_message(json.dumps(data).encode())


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
def test_what_is_no_message_is_refused(text: bytes) -> None:
    """Anything but the two forms is a `ConfigError`, never another error."""
    with pytest.raises(ConfigError):
        read_message(text)


def test_an_answer_arrives_as_it_was() -> None:
    """Interval, plan and addresses come over."""
    answer = SyncAnswer(0.5, "e1:3:1", PLAN, {"b4-c1": ("unix:/run/s",)})
    assert answer == SyncAnswer.from_json(answer.to_json())
    assert SyncAnswer(2.0) == SyncAnswer.from_json(SyncAnswer(2.0).to_json())


def test_a_plan_may_be_computed_with_numpy() -> None:
    """Its numbers and texts, which are kinds of Python's own, arrive as those."""
    route = Route("*", {"b4-c1": np.float64(1.0)}, np.float64(0.01))
    plan = replace(PLAN, routes=(route,), explain=(np.str_("why"),))
    answer = SyncAnswer(0.5, "e1:3:1", plan, {"b4-c1": ("unix:/run/s",)})
    assert answer == SyncAnswer.from_json(answer.to_json())


def test_an_answer_with_an_ill_formed_plan_is_refused() -> None:
    """A plan in an answer is checked as any other."""
    data = json.loads(SyncAnswer(0.5, "e1:3:1", PLAN).to_json())
    data["plan"]["classes"][0]["cpu"] = -1
    with pytest.raises(ConfigError, match=r"classes\[0\].cpu"):
        SyncAnswer.from_json(json.dumps(data).encode())


def test_a_proof_holds_for_one_message_and_one_token() -> None:
    """Another message, another sender, another answer, another token: another proof."""
    shown = proof(b"token", "a" * 16, 7, b"{}")
    others = [
        proof(b"Token", "a" * 16, 7, b"{}"),
        proof(b"token", "b" * 16, 7, b"{}"),
        proof(b"token", "a" * 16, 8, b"{}"),
        proof(b"token", "a" * 16, 7, b"{} "),
    ]
    assert shown == proof(b"token", "a" * 16, 7, b"{}")
    assert 5 == len({shown, *others})
