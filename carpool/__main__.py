"""The ``carpool`` command: a table of commands, each imported only when it is called.

Targets are strings, so that start-up stays fast and no other part is imported here. Each target
is ``main(argv: list[str]) -> int``.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import sys

from carpool import __version__

__all__ = ["COMMANDS", "GROUPS", "main"]

# By group and name: where it is, what it does, and an example.
GROUPS: dict[str, dict[str, tuple[str, str, str]]] = {
    "First steps": {
        "demo": (
            "faas_stack.demo.command:main",
            "serve real models and compare batching policies",
            "carpool demo",
        ),
        "new": (
            "faas_stack.stack.new:main",
            "create a function from a template",
            "carpool new NAME --model model.onnx",
        ),
        "up": (
            "faas_stack.stack.up:main",
            "start a stack file's functions on this machine",
            "carpool up -f stack.yaml",
        ),
        "load": (
            "faas_stack.load.command:main",
            "send open-loop load and report latency",
            "carpool load --url http://127.0.0.1:8080/function/NAME --rate 100 --duration 10s",
        ),
        "canary": (
            "faas_stack.canary_command:main",
            "give another function a share of a function's calls",
            "carpool canary NAME NAME-v2=10",
        ),
        "reload": (
            "faas_stack.reload_command:main",
            "reload a function's code and model without losing a request",
            "carpool reload NAME",
        ),
        "logs": (
            "faas_stack.logs_command:main",
            "print the output of a function's instances",
            "carpool logs NAME --follow",
        ),
        "doctor": (
            "faas_stack.doctor.command:main",
            "find conflicting settings and suggest fixes",
            "carpool doctor -f stack.yaml",
        ),
    },
    "Choose a policy": {
        "advise": (
            "simulator.advice.command:main",
            "recommend a policy and settings for a trace",
            "carpool advise trace.csv --model latencies.csv --slo 200ms",
        ),
        "policies": (
            "carpool.policies_command:main",
            "list the policies, or check one",
            "carpool policies --check mine:Policy",
        ),
        "plan": (
            "scaler.plan_command:main",
            "plan once for a scenario file",
            "carpool plan scenario.yaml --policy infless",
        ),
        "simulate": (
            "simulator.command:main",
            "run a scenario in simulated time under scaling policies",
            "carpool simulate scenario.yaml --policy infless --policy openfaas --report out.html",
        ),
        "compare": (
            "faas_stack.compare.command:main",
            "compare policies, simulated or on a stack",
            "carpool compare scenario.yaml --live --policy infless --policy openfaas",
        ),
    },
    "Measure a model": {
        "profile": (
            "watchdog_plugin.profiling.command:main",
            "measure a model and its operators",
            "carpool profile model.onnx --cpu 1 --batch 1,2,4,8",
        ),
        "predict": (
            "watchdog_plugin.profiling.predict_command:main",
            "predict a model's latency, without running it",
            "carpool predict model.onnx --cpu 1 --batch 1,2,4,8",
        ),
        "calibrate": (
            "watchdog_plugin.profiling.calibrate_command:main",
            "measure this machine, to use another machine's profiles",
            "carpool calibrate",
        ),
        "register": (
            "watchdog_plugin.registration.command:main",
            "create, measure and register variants of a model",
            "carpool register model.onnx --app classify --validation validation.npz",
        ),
        "stages": (
            "watchdog_plugin.stage_cutting.command:main",
            "cut an ONNX model into stages",
            "carpool stages model.onnx",
        ),
    },
    "Run the parts separately": {
        "provider": (
            "faas_stack.stack.up:provider_main",
            "run the OpenFaaS provider alone, for faas-cli",
            "carpool provider -f stack.yaml",
        ),
        "scaler": (
            "scaler.command:main",
            "run the scaler, or query a running one",
            "carpool scaler status",
        ),
        "sidecar": (
            "sidecar.app:main",
            "run one function's sidecar",
            "fprocess='python -m watchdog_plugin' carpool sidecar",
        ),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}

_OURS = frozenset({"carpool", "faas_stack", "scaler", "sidecar", "simulator", "watchdog_plugin"})
_EXTRAS = {"faas_stack": "stack,scaler", "watchdog_plugin": "onnx"}
_OF_ONNX = frozenset({"onnx", "onnxruntime"})  # scenarios and demos may have models of operators
_OF_CLUSTERS = frozenset({"httpx2", "lightkube"})
_USAGE_EXIT = 2
_INTERRUPT_EXIT = 130  # what a shell reports for SIGINT
_PIPE_EXIT = 141  # and for SIGPIPE
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def main(argv: list[str] | None = None) -> int:
    """Run the command that ``argv`` (default: the process's arguments) names."""
    name, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    try:
        try:
            return _main(name, rest, is_alone=argv is None)
        finally:
            sys.stdout.flush()  # what is still buffered may fail as well
    except BrokenPipeError:  # its reader has ended, for example `| head`
        _drop_output()
        return _PIPE_EXIT
    except OSError as error:
        if error.errno not in _FULL:
            raise
        _drop_output()
        return _fail(name, f"the output is incomplete: {error.strerror}", 1)


def _drop_output() -> None:
    """Discard what would be flushed to standard output at exit, as that would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _main(name: str, rest: list[str], *, is_alone: bool) -> int:
    if is_alone and "" not in sys.path:
        sys.path.append("")  # as for `python -m carpool`: a policy may be a file in this folder
    if name in ("-h", "--help"):
        sys.stdout.write(_help())
        return 0
    if name in ("-V", "--version"):
        sys.stdout.write(f"carpool {__version__}\n")
        return 0
    if name not in COMMANDS:
        from carpool.validation.problems import nearest  # noqa: PLC0415  only a mistake pays for difflib

        hint = nearest(name, COMMANDS) or f"the commands are {', '.join(COMMANDS)}"
        return _fail("", f"no command {name!r}; {hint}", _USAGE_EXIT)
    return _run(name, rest, is_alone=is_alone)


def _run(name: str, argv: list[str], *, is_alone: bool) -> int:
    from carpool.errors import CarpoolError  # noqa: PLC0415  --version and --help stay instant

    module_name, _, function_name = COMMANDS[name][0].partition(":")
    gc.disable()  # imports leave no garbage; collections take an eighth of their time
    try:
        command = getattr(importlib.import_module(module_name), function_name)
        if is_alone:  # in a process of its own, where imported modules stay
            gc.freeze()
        gc.enable()
        return int(command(argv))
    except CarpoolError as error:
        return _fail(name, str(error), error.exit_code)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if not missing or missing in _OURS:
            raise
        fix = f"run pip install 'carpool[{extras(module_name, missing)}]'"
        return _fail(name, f"the Python package {missing!r} is not installed; {fix}", 1)
    except KeyboardInterrupt:
        return _INTERRUPT_EXIT
    finally:
        gc.enable()


def extras(module_name: str, package: str) -> str:
    """Return the extras that a command's module needs, including the one with ``package``."""
    part = module_name.partition(".")[0]
    if package in _OF_CLUSTERS:
        return f"{_EXTRAS.get(part, part)},kubernetes"
    named = _EXTRAS.get(part, "scaler")
    return f"{named},onnx" if package in _OF_ONNX and named != "onnx" else named


def _fail(name: str, message: str, exit_code: int) -> int:
    who = f"carpool {name}" if name else "carpool"
    for line in message.splitlines() or [""]:
        sys.stderr.write(f"{who}: {line}\n")
    return exit_code


def _help() -> str:
    return (
        "usage: carpool COMMAND [OPTIONS]\n\n"
        "Batched machine-learning inference for OpenFaaS.\n\n"
        f"{''.join(map(_listing, GROUPS))}"
        "carpool COMMAND --help explains a command; carpool --version prints the version.\n"
    )


def _listing(group: str) -> str:
    width = max(map(len, COMMANDS))
    lines = [
        f"  {name:<{width}}  {about}\n  {'':<{width}}    {example}\n"
        for name, (_, about, example) in GROUPS[group].items()
    ]
    return f"{group}:\n{''.join(lines)}\n"


if __name__ == "__main__":
    sys.exit(main())
