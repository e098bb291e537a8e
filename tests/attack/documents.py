"""Valid documents of every kind that is read, and what reads them, to be mutated.

Each target is a valid seed, the words that its language minds about, and one documented error.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from carpool import wire
from carpool.errors import CarpoolError, ConfigError
from carpool.latency.table import read_table
from carpool.plan import InstanceClass, Plan, Route
from carpool.sync import (
    Announcement,
    AppReport,
    ClassReport,
    FrontReport,
    InstanceReport,
    SyncAnswer,
    read_message,
)
from faas_stack.provider.deployment import Deployment
from faas_stack.stack import stack_file
from scaler.scenarios.scenario_file import read_scenario
from tests.attack.mutations import mutated_bytes, mutated_texts, outcomes

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["TEXTS", "WIRE", "Texts", "read_texts", "read_wire"]

_ROOT = Path(__file__).parents[2]
_SCENARIOS = _ROOT / "examples" / "scenarios"
_GOLDEN = _ROOT / "tests" / "contract" / "golden"
_NUMBERS = ["0", "-1", "1e400", "nan", "inf", "-inf", "1e-400", "9" * 30, "1_000", "0x10", "٣", "²"]
_YAML_WORDS = [
    *_NUMBERS,
    *("{", "}", "[", "]", ": ", "- ", "&a ", "*a", "<<: *a", "!!python/object:os.system ", "!x "),
    *("null", "~", "true", "'", '"', "|", ">", "---\n", "\t", "? ", "%YAML 9\n", "2020-01-01", "#"),
]
_JSON_WORDS = [
    *_NUMBERS,
    *("{", "}", "[", "]", ",", ":", '"', "null", "true", '"\\ud800"', '""', "\\u0000", "{}", "[]"),
]
_STACK = """\
version: 1.0
provider: {name: openfaas, gateway: http://127.0.0.1:8080}
functions:
  fn:
    lang: python3-batch
    handler: ./fn
    image: ${OWNER:-me}/fn:0.1
    environment: {a: true, d: "x"}
    secrets: [s1, s2]
    constraints: ["gpu = yes"]
    labels: {com.carpool.slo: 200ms, com.carpool.batch.max: "8", com.carpool.cpu: "1.5"}
    annotations: {topic: cats, com.carpool.apps: '[{"name": "web", "slo": "100ms"}]'}
    limits: {memory: 128Mi, cpu: 500m}
"""
_DEPLOYMENT = {
    "service": "fn",
    "image": "fn:latest",
    "envProcess": "python -m thing",
    "envVars": {"a": "1"},
    "labels": {"com.carpool.slo": "200ms", "com.carpool.scale.max": "4", "com.carpool.cpu": "1"},
    "annotations": {"com.carpool.apps": '[{"name": "web", "slo": "100ms"}]'},
    "limits": {"memory": "128Mi", "cpu": "500m"},
    "secrets": ["s1"],
    "readOnlyRootFilesystem": True,
}


class Texts(NamedTuple):
    """A kind of document.

    Attributes:
        seeds: valid ones; each is read before it is mutated.
        words: what its language minds about.
        read: reads the file, in a folder with all that it refers to.
        refused: the documented error.
    """

    seeds: Sequence[str]
    words: Sequence[str]
    read: Callable[[Path], object]
    refused: type[Exception]


def read_texts(name: str, folder: Path, numbers: Iterable[int]) -> Counter[str]:
    """What becomes of mutations of the documents of this kind."""
    kind = TEXTS[name]
    shutil.copytree(_SCENARIOS, folder / "mutated")
    (folder / "mutated" / "fn").mkdir()
    path = folder / "mutated" / "document"

    def once(text: str) -> None:
        path.write_text(text, encoding="utf-8", newline="")
        kind.read(path)

    for seed in kind.seeds:
        once(seed)
    return outcomes(once, mutated_texts(kind.seeds, kind.words, numbers), kind.refused)


def read_wire(name: str, numbers: Iterable[int]) -> Counter[str]:
    """What becomes of mutations of a message between sidecar and handler."""
    decode = WIRE[name]

    def once(message: bytes) -> None:
        columns = decode(message)
        assert len({len(column) for column in columns}) == 1
        for head in columns.heads:
            wire.parse_head(head)

    seed = (_GOLDEN / f"{name}.bin").read_bytes()
    once(seed)
    return outcomes(once, mutated_bytes([seed], numbers), wire.WireError)


_REPORT = FrontReport(
    *("classify", "a" * 16, 7, "e1:2:3", 4, 0.5, None, 3),
    starving=True,
    apps=(AppReport("web", 5),),
    classes=(ClassReport("b4-c1", 2, 5, 0.25, 0.01, 0.002),),
    instances=(InstanceReport("a:80", "b4-c1", up=True, in_flight=1, idle_s=0.0, item_count=0),),
    idle={3: 1},
    outcomes={"done": 5},
    latency={40: 4, 51: 1},
)
_ANNOUNCEMENT = Announcement("classify", "b" * 16, 1, "b4-c1", "unix:/run/s", "ready", 1.5, "")
_PLAN = Plan(
    "classify",
    3,
    "infless",
    (InstanceClass("b4-c1", cpu=1, batch_size=4, replicas=2),),
    (Route("*", {"b4-c1": 1.0}, 0.01),),
)
_ANSWER = SyncAnswer(0.5, "r", _PLAN, {"b4-c1": ("a:1",)}, {"a:1": "overloaded"})

TEXTS = {
    "latency tables": Texts(
        [(_SCENARIOS / "resnet-50.csv").read_text()],
        [*_NUMBERS, ",", '"', "cpu_threads", "\n"],
        read_table,
        ConfigError,
    ),
    "scenarios": Texts(
        [(_SCENARIOS / f"{name}.yaml").read_text() for name in ("osvt", "batch", "tagging")],
        [*_YAML_WORDS, "poisson", "mmpp2", "trace", "table", "linear", "slo_ms", "rate"],
        read_scenario,
        ConfigError,
    ),
    "stack files": Texts(
        [_STACK],
        [*_YAML_WORDS, "${", "${A:-", "}", "labels", "com.carpool.slo", "200ms", "-5ms"],
        stack_file.load,
        ConfigError,
    ),
    "deployments": Texts(
        [json.dumps(_DEPLOYMENT, indent=1)],
        [*_JSON_WORDS, "com.carpool.slo", "200ms", "-5ms", "128Mi", "../"],
        lambda path: Deployment.from_json(path.read_bytes()),
        CarpoolError,
    ),
    "messages of sidecars": Texts(
        [_REPORT.to_json().decode(), _ANNOUNCEMENT.to_json().decode()],
        _JSON_WORDS,
        lambda path: read_message(path.read_bytes()),
        ConfigError,
    ),
    "answers of the scaler": Texts(
        [_ANSWER.to_json().decode()],
        _JSON_WORDS,
        lambda path: SyncAnswer.from_json(path.read_bytes()),
        ConfigError,
    ),
}

WIRE: dict[str, Callable[[bytes], wire.RequestColumns | wire.AnswerColumns]] = {
    "request": wire.decode_request,
    "answer": wire.decode_answer,
}
