"""The handler's own settings, read strictly from the environment; nothing else reads it.

How a function is batched is `carpool.settings`' business; the handler takes two values from there:
the cores a model may use and the most rows of one run.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from carpool import address
from carpool.lazy_batching.rules import Rules
from carpool.settings import FunctionSettings
from carpool.validation.problems import Problems
from watchdog_plugin.handler_contract import RAGGED

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ENVIRONMENT", "HandlerSettings"]

_MIB = 1024 * 1024
_KNOWN_PREFIX = "handler_"

# name -> (default, meaning); docs/handler.md shows the same table.
ENVIRONMENT: dict[str, tuple[str, str]] = {
    "handler_listen": ("127.0.0.1:5000", "where to listen: HOST:PORT or unix:/path"),
    "handler_exit_on_term": ("false", "true: SIGTERM ends the process once no request is left"),
    "handler_key": ("", "what each request must show as x-carpool-key; the sidecar sets one"),
    "handler_body_max_mib": ("64", "largest body of one POST, which may be a whole batch"),
    "handler_answer_max_mib": ("64", "largest answer to one POST, which may be a whole batch's"),
    "function_dir": ("function", "folder of handler.py and model.onnx"),
    "model_path": ("", "model file; default model.onnx in function_dir"),
    "model_name": ("", "the one model name /v2/models answers to; default any"),
    "model_variant": (
        "",
        "which of function_dir/variants; default model.onnx, or else the most accurate",
    ),
    "handler_threads": (
        "",
        "threads of one run of a model; default the whole cores of com.carpool.cpu, at least one",
    ),
    "handler_lazy_rules": (
        "",
        "how requests join those that run, as JSON; docs/policies/lazybatching.md",
    ),
    "model_ragged": ("", "variable lengths, as JSON; instead of what handler.py declares"),
}


@dataclass(frozen=True, slots=True)
class HandlerSettings:
    """What one handler process was told."""

    listen: address.Address
    exit_on_term: bool
    key: str
    body_max_bytes: int
    answer_max_bytes: int
    function_dir: Path
    model_path: Path
    model_path_given: bool
    model_name: str
    variant: str
    lengths: Mapping[str, object]
    threads: int
    batch_max: int
    lazy: bool
    rules: Rules

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self:
        """Read the environment.

        Raises:
            ConfigError: every unknown ``handler_*`` or ``carpool_*`` name and every bad value.
        """
        problems = Problems()
        for name, text in env.items():
            if name.startswith(_KNOWN_PREFIX) and name not in ENVIRONMENT:
                problems.unknown(name, ENVIRONMENT, text)
        function = problems.attempt(lambda: FunctionSettings.from_env(env)) or FunctionSettings()
        texts = {name: env.get(name) or default for name, (default, _) in ENVIRONMENT.items()}
        listen = problems.attempt(lambda: address.parse(texts["handler_listen"], "handler_listen"))
        folder = Path(texts["function_dir"])
        model_path = texts["model_path"]
        settings = cls(
            listen=listen or address.Address("", 0, ""),
            exit_on_term=_flag("handler_exit_on_term", texts, problems),
            key=texts["handler_key"],
            body_max_bytes=_count("handler_body_max_mib", texts, problems) * _MIB,
            answer_max_bytes=_count("handler_answer_max_mib", texts, problems) * _MIB,
            function_dir=folder,
            model_path=Path(model_path) if model_path else folder / "model.onnx",
            model_path_given=bool(model_path),
            model_name=texts["model_name"],
            variant=texts["model_variant"],
            lengths=_lengths(texts["model_ragged"], problems),
            threads=_threads(texts, function.cpu, problems),
            batch_max=function.batch_max,
            lazy=function.executor == "lazy",
            rules=_rules(texts["handler_lazy_rules"], problems),
        )
        problems.raise_if_any()
        return settings


def _threads(texts: Mapping[str, str], cores: float | None, problems: Problems) -> int:
    """What was said, else no more than there are whole cores: one more only gets in the way."""
    if texts["handler_threads"]:
        return _count("handler_threads", texts, problems)
    return max(1, int(cores or 1))


def _lengths(text: str, problems: Problems) -> dict[str, Any]:
    if not text:
        return {}
    try:
        declared = json.loads(text)
    except ValueError:
        declared = None
    if not isinstance(declared, dict):
        problems.add("model_ragged", text, 'a JSON object, as in {"ragged": {"input_ids": 1}}')
        return {}
    for name in declared.keys() - RAGGED:
        problems.unknown(f"model_ragged {name}", [f"model_ragged {known}" for known in RAGGED])
    return declared


def _rules(text: str, problems: Problems) -> Rules:
    expected = f"a JSON object of {', '.join(field.name for field in fields(Rules))}"
    try:
        given = json.loads(text or "{}")
        return Rules(**given) if isinstance(given, dict) else _no_rules(text, expected, problems)
    except (TypeError, ValueError) as error:
        return _no_rules(text, f"{expected} ({error})", problems)


def _no_rules(text: str, expected: str, problems: Problems) -> Rules:
    problems.add("handler_lazy_rules", text, expected)
    return Rules()


def _flag(name: str, texts: Mapping[str, str], problems: Problems) -> bool:
    if texts[name] not in ("true", "false"):
        problems.add(name, texts[name], "true or false")
    return texts[name] == "true"


def _count(name: str, texts: Mapping[str, str], problems: Problems) -> int:
    text = texts[name]
    if text.isdecimal() and int(text) > 0:
        return int(text)
    problems.add(name, text, "a whole number of at least 1")
    return 1
