"""Checks of the environment that a function gives to sidecar, watchdog and handler."""

from __future__ import annotations

import ast
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from carpool import address
from carpool.errors import ConfigError, Problem
from carpool.settings import ENV_PREFIX
from carpool.validation.problems import nearest
from sidecar.options import Options
from watchdog_plugin.settings import HandlerSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from faas_stack.doctor.context import Case, FunctionContext

__all__ = [
    "cold_first_batch",
    "grpc_port_shared",
    "handler_crashed",
    "model_missing",
    "nearly_ours",
    "overruled",
    "refused_batches",
    "wrong_options",
]

_PIPELINED = 2  # a fast handler may get a second batch while it executes one
_SPARE = 2  # with the executor lazy, half a batch more waits to join
_OVERRULED = {
    "mode": "http",
    "port": "sidecar_watchdog_port",
    "upstream_url": "sidecar_handler_port",
    "http_upstream_url": "sidecar_handler_port",
    "ready_path": "/_/ready",
    "function_process": "fprocess",
}
_WATCHDOG = (
    *("exec_timeout", "read_timeout", "write_timeout", "healthcheck_interval", "max_inflight"),
    *("log_buffer_size", "prefix_logs", "suppress_lock", "http_buffer_req_body"),
)
_MODELS = (("model.onnx",), ("models",), ("variants",))  # where the handler looks for them
_NEED_NO_MODEL = ("handle_batch", "stream", "*")  # a star may import one of them
_ONE_NETWORK = "carpool process"  # of all functions
_PREFIXES = (ENV_PREFIX, "sidecar_", "handler_")
_ELSEWHERE = frozenset(("sidecar_plan_folder",))  # a folder in the container, not on this machine


def wrong_options(context: FunctionContext) -> Iterator[Problem]:
    """Every ``sidecar_*`` and ``handler_*`` variable exists and has a valid value."""
    function = context.function
    env = {k: v for k, v in function.environment.items() if not k.startswith(ENV_PREFIX)}
    named = {"OPENFAAS_NAME": function.name, "fprocess": function.fprocess, **env}
    readers: tuple[Callable[[Mapping[str, str]], object], ...]
    readers = (Options.from_env, HandlerSettings.from_env)
    for read in readers:
        try:
            read(named)
        except ConfigError as error:
            for problem in error.problems:
                if problem.name not in _ELSEWHERE and problem.name != "exec_timeout":
                    yield replace(problem, name=context.env(problem.name))


def nearly_ours(context: FunctionContext) -> Iterator[Problem]:
    """No variable is a misspelt form of one of the sidecar, the handler or the watchdog."""
    for name, value in sorted(context.function.environment.items()):
        fix = _nearly(name)
        if fix:
            expected = "a name that Carpool knows"
            yield Problem(context.env(name), value, expected, fix)


def _nearly(name: str) -> str:
    prefix, line, rest = name.partition("_")
    if name in _WATCHDOG or name in _OVERRULED or f"{prefix}_" in _PREFIXES:
        return ""
    if line and rest:
        for ours in _PREFIXES:
            if nearest(f"{prefix.lower()}_", [ours]) and len(prefix) > len(ours) - 3:
                return f"did you mean {ours + rest.lower()!r}?"
    return nearest(name, _WATCHDOG) if name.lower() in _WATCHDOG or _close(name) else ""


def _close(name: str) -> bool:
    """Return whether a name differs by one or two letters from a variable of the watchdog."""
    return any(
        abs(len(name) - len(known)) <= 1 and _differing(name, known) <= 2  # noqa: PLR2004
        for known in _WATCHDOG
    )


def _differing(name: str, known: str) -> int:
    same = 0
    while same < min(len(name), len(known)) and name[same] == known[same]:
        same += 1
    left, right = name[same:], known[same:]
    while left and right and left[-1] == right[-1]:
        left, right = left[:-1], right[:-1]
    return max(len(left), len(right))


def refused_batches(context: FunctionContext) -> Iterator[Problem]:
    """``max_inflight`` admits all batches that the sidecar sends to an instance at once."""
    text = context.function.environment.get("max_inflight", "")
    if not text:
        return
    least, why = _at_once(context)
    if not (text.isascii() and text.isdecimal()):
        fix = "the watchdog applies no limit if it cannot parse the value"
        yield Problem(context.env("max_inflight"), text, "a whole number", fix)
    elif 0 < int(text) < least:
        fix = f"remove it: the sidecar queues excess requests, the watchdog answers 429; {why}"
        yield Problem(context.env("max_inflight"), text, f"0, or at least {least}", fix)


def _at_once(context: FunctionContext) -> tuple[int, str]:
    """Return the maximum number of batches that an instance holds, and the reason."""
    settings = context.settings
    if settings is None or settings.executor != "lazy":
        return _PIPELINED, "a quick handler gets the next batch while it works on one"
    spare = -(-settings.batch_max // _SPARE)
    return settings.batch_max + spare, "with executor lazy requests join one by one"


def overruled(context: FunctionContext) -> Iterator[Problem]:
    """No variable of the watchdog is set that the sidecar overrides, or that breaks it."""
    env = context.function.environment
    for name, fix in _OVERRULED.items():
        if name in env:
            expected = "no value: the sidecar sets it when it starts the watchdog"
            yield Problem(context.env(name), env[name], expected, f"remove it, or see {fix}")
    if env.get("suppress_lock", "").lower() in ("true", "1"):
        fix = "remove it: the watchdog would answer every health check with 503"
        yield Problem(context.env("suppress_lock"), env["suppress_lock"], "false", fix)
    size = env.get("log_buffer_size", "-1")
    if size != "-1":
        fix = "remove it: one longer line ends the log, and later prints hang the function"
        yield Problem(context.env("log_buffer_size"), size, "-1", fix)


def cold_first_batch(context: FunctionContext) -> Iterator[Problem]:
    """A ``handle_batch`` with an objective has an ``example`` for its warm-up."""
    function = context.function
    if not (function.handler and function.template and context.objectives):
        return
    source = function.handler / "handler.py"
    try:
        tree = ast.parse(source.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return  # reported when the function is assembled or loaded
    names = {name for node in tree.body for name in _names(node)}
    if "handle_batch" in names and "example" not in names:
        expected = "a body, or a list of bodies, that the function runs before it is ready"
        fix = (
            "add example = b'...' to handler.py; otherwise the first request after a start is slow"
        )
        yield Problem(f"functions.{function.name}: {source.name}: example", "", expected, fix)


def model_missing(case: Case) -> Iterator[Problem]:
    """Each handler that defines neither `handle_batch` nor `stream` has a model."""
    if any(Path(path).parts[:1] in _MODELS for path in case.stack.copy):
        return  # copied into each handler's folder
    for function in (each.function for each in case.contexts):
        ours = function.template is not None and function.fprocess.endswith("-m watchdog_plugin")
        folder = function.handler
        if not ours or folder is None or "model_path" in function.environment:
            continue
        if not _has_model(folder) and _needs_model(folder / "handler.py"):
            expected = "a model, or a handler.py that defines handle_batch or stream"
            fix = "copy your model there; to try the template, copy its example.onnx to model.onnx"
            where = f"functions.{function.name}: {folder / 'model.onnx'}"
            yield Problem(where, "no file", expected, fix)


def handler_crashed(case: Case) -> Iterator[Problem]:
    """No function behind `--gateway` has a handler that ended by itself."""
    for name, count in case.around.crashes.items():
        if count:
            fix = f"its output is in carpool logs {name}"
            where, value = f"functions.{name}: crashes of its handler", f"{count:g}"
            yield Problem(where, value, "0, as each interrupts requests", fix)


def grpc_port_shared(case: Case) -> Iterator[Problem]:
    """No two functions on one machine have the same port in `sidecar_grpc`."""
    owners: dict[int, str] = {}
    for each in case.contexts:
        name, where = each.function.name, each.function.environment.get("sidecar_grpc", "").strip()
        port = _machine_port(where, case.around.provider)
        owner = owners.setdefault(port, name) if port else name
        if owner != name:
            expected = f"another port than that of {owner}"
            fix = f"give {name} a port of its own: they would get each other's calls"
            yield Problem(each.env("sidecar_grpc"), where, expected, fix)


def _machine_port(where: str, provider: str) -> int:
    """Return the TCP port that functions on this machine share; 0 if none, or if it is unknown.

    Containers have networks of their own, in which a loopback address cannot be reached.
    """
    with suppress(ConfigError):  # reported elsewhere
        parsed = address.parse(where)
        if parsed.is_local or provider.startswith(_ONE_NETWORK):
            return parsed.port
    return 0


def _has_model(folder: Path) -> bool:
    """Return whether the handler finds a model: its own, one of several, or variants."""
    several = folder.glob("models/*/model.onnx")
    return (folder / "model.onnx").is_file() or any(
        (*several, *folder.glob("variants/**/variants.json"))
    )


def _needs_model(source: Path) -> bool:
    """Return whether a handler cannot do without a model; a faulty one is reported elsewhere."""
    if not source.is_file():
        return True
    try:
        tree = ast.parse(source.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return False
    names = {name for node in ast.walk(tree) if isinstance(node, ast.stmt) for name in _names(node)}
    return names.isdisjoint(_NEED_NO_MODEL)


def _names(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name for alias in node.names)
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (target.id for target in targets if isinstance(target, ast.Name))
