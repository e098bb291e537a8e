"""The carpool command: its table of commands, its errors, and its start-up imports."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from carpool import __main__ as command
from carpool import __version__, plugins, policies_command
from carpool.errors import ConfigError, NotFound, Problem
from tests.installed import install

if TYPE_CHECKING:
    Captured = pytest.CaptureFixture[str]

PROJECT = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())[
    "project"
]


OF_TESTS = ("refuse", "lose", "count", "interrupted", "lacking")


def _refuse(argv: list[str]) -> int:
    raise ConfigError([Problem("slo", argv[0], "a duration"), Problem("cpu", "x", "cores")])


def _lose(argv: list[str]) -> int:
    message = f"no function {argv[0]!r}"
    raise NotFound(message)


def _count(argv: list[str]) -> int:
    return len(argv)


def _interrupted(_argv: list[str]) -> int:
    raise KeyboardInterrupt


def _lacking(_argv: list[str]) -> int:
    raise ModuleNotFoundError(name="yaml.reader")


@pytest.fixture(autouse=True)
def _table(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OF_TESTS:
        monkeypatch.setitem(command.COMMANDS, name, (f"{__name__}:_{name}", f"test {name}", ""))
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])


def test_policy_in_working_directory_is_found(tmp_path: Path) -> None:
    """A policy is found in the working directory, even if Python does not search it (``-P``)."""
    (tmp_path / "mine.py").write_text("class Mine:\n    def propose(self): ...\n")
    asked = [sys.executable, "-P", "-m", "carpool", "policies", "--check", "mine:Mine"]
    answered = subprocess.run(
        asked, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert "No module named" not in answered.stderr
    assert "policy = 'Mine': expected a class with a nested dataclass Params" in answered.stderr


def test_every_target_exists() -> None:
    """Each command of the table names an existing module."""
    built_in = [target for target, *_ in command.COMMANDS.values() if "test" not in target]
    assert [] == [target for target in built_in if not find_spec(target.partition(":")[0])]


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"]])
def test_help_lists_the_commands(argv: list[str], capsys: Captured) -> None:
    """Without a command or with ``--help``, all are listed in groups, with a line and example."""
    assert 0 == command.main(argv)
    printed = capsys.readouterr().out
    expected = [
        text
        for group, commands in command.GROUPS.items()
        for texts in ((group,), *((name, line, how) for name, (_, line, how) in commands.items()))
        for text in texts
    ]
    assert "First steps" == expected[0]
    place = 0
    for text in expected:
        place = printed.index(text, place) + len(text)


@pytest.mark.parametrize("name", [name for group in command.GROUPS.values() for name in group])
def test_flags_in_command_examples_exist(name: str, capsys: Captured) -> None:
    """The flags in a command's example are among its options."""
    example = command.COMMANDS[name][2]
    assert f"carpool {name}" in example
    if name == "sidecar":  # it is told by its environment
        return
    with pytest.raises(SystemExit):
        command.main([name, *verbs(example, name), "--help"])
    known = capsys.readouterr().out
    for flag in re.findall(r" (--?[a-z]+)", example):
        assert flag in known


def verbs(example: str, name: str) -> list[str]:
    """Return the subcommand in an example, if the command has subcommands."""
    return [example.split()[2]] if name == "scaler" else []


def test_version_is_that_of_the_package(capsys: Captured) -> None:
    """``--version`` prints the version of the package."""
    assert 0 == command.main(["--version"])
    assert f"carpool {__version__}\n" == capsys.readouterr().out


def test_an_unknown_command_names_the_nearest(capsys: Captured) -> None:
    """A misspelt command exits 2 with the fix on standard error."""
    assert 2 == command.main(["polices"])
    captured = capsys.readouterr()
    assert "" == captured.out
    assert "carpool: no command 'polices'; did you mean 'policies'?\n" == captured.err


@pytest.mark.parametrize(
    ("argv", "exit_code", "printed"),
    [
        (["count", "a", "--b"], 2, ""),
        (["lose", "f"], 1, "carpool lose: no function 'f'\n"),
        (["interrupted"], 130, ""),
        (
            ["refuse", "fast"],
            2,
            (
                "carpool refuse: slo = 'fast': expected a duration\n"
                "carpool refuse: cpu = 'x': expected cores\n"
            ),
        ),
    ],
)
def test_exit_codes_and_messages(
    argv: list[str], exit_code: int, printed: str, capsys: Captured
) -> None:
    """A command's exit code is kept; a Carpool error gives lines and a code, no traceback."""
    assert exit_code == command.main(argv)
    assert printed == capsys.readouterr().err


@pytest.mark.parametrize("argv", [["policies"], ["--help"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("target", ["pipe", "disk"])
def test_unwritable_output_is_no_traceback(argv: list[str], unbuffered: str, target: str) -> None:
    """Output into a pipe without a reader ends as for SIGPIPE, and onto a full disk with 1."""
    reader, pipe = os.pipe()
    os.close(reader)
    with os.fdopen(pipe, "wb") as broken, Path("/dev/full").open("wb") as full:
        result = subprocess.run(
            [sys.executable, "-m", "carpool", *argv],
            stdout=broken if target == "pipe" else full,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            text=True,
            check=False,
        )
    name = argv[0] if argv[0] in command.COMMANDS else "--help"
    said = f"carpool {name}: the output is incomplete: No space left on device\n"
    expected = (141, "") if target == "pipe" else (1, said)
    assert expected == (result.returncode, result.stderr)


@pytest.mark.parametrize("package", ["yaml", "numpy", "onnx", "onnxruntime"])
def test_named_extras_provide_the_missing_package(package: str) -> None:
    """Installing the extras named in the message provides the missing package."""
    about_models = {"calibrate", "predict", "profile", "register", "stages"}
    ours = set(command.COMMANDS) - set(OF_TESTS)
    lacking = {name for name in ours if not _brings(name, package)}
    assert (about_models if package == "yaml" else set()) == lacking


def _brings(name: str, package: str) -> bool:
    """Return whether the extras that ``name`` suggests for ``package`` contain it."""
    known = PROJECT["optional-dependencies"]
    module = command.COMMANDS[name][0].partition(":")[0]
    named = [need for extra in command.extras(module, package).split(",") for need in known[extra]]
    brought = {re.split(r"[<>=;\[ ]", need)[0].lower() for need in named}
    return {"yaml": "pyyaml"}.get(package, package) in brought


def test_a_missing_package_is_named_with_the_fix(capsys: Captured) -> None:
    """A command whose package is not installed names the package and how to install it."""
    assert 1 == command.main(["lacking"])
    assert "package 'yaml' is not installed; run pip install 'carpool[" in capsys.readouterr().err


def test_starting_imports_nothing_heavy() -> None:
    """``carpool --version`` imports no other package of the project, no argparse and no asyncio."""
    code = (
        "import sys; from carpool.__main__ import main; main(['--version']);"
        "heavy = {'argparse', 'asyncio', 'sidecar', 'faas_stack', 'numpy', 'importlib.metadata'};"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    started = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (0, b"") == (started.returncode, started.stderr)


def test_policies_as_json(capsys: Captured) -> None:
    """Every built-in is listed with its origin, parameters, defaults and first docstring line."""
    assert 0 == policies_command.main(["--json", "--kind", "batch"])
    listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)["policies"]}
    assert set(plugins.BUILT_IN["batch"]) == set(listed)
    fixed = listed["fixed"]
    assert ("batch", "built-in") == (fixed["kind"], fixed["origin"])
    assert {"size": 0, "wait_s": 0.01} == fixed["params"]
    assert fixed["summary"].startswith("Leave with")


def test_policies_of_every_kind(capsys: Captured) -> None:
    """Without a kind, all policies are listed, each with its kind."""
    assert 0 == policies_command.main(["--json"])
    entries = json.loads(capsys.readouterr().out)["policies"]
    listed = {(entry["kind"], entry["name"]) for entry in entries}
    assert listed >= {("scale", name) for name in plugins.BUILT_IN["scale"]}
    assert listed >= {("batch", name) for name in plugins.BUILT_IN["batch"]}
    assert [] == [entry for entry in entries if "error" in entry]


def test_unknown_policy_to_check_is_compared_with_all_kinds(capsys: Captured) -> None:
    """The message lists batch and scaling policies."""
    assert 2 == command.main(["policies", "--check", "inflesss"])
    said = capsys.readouterr().err
    assert "did you mean 'infless'" in said
    assert "deadline, " in said


@pytest.mark.parametrize("flags", [(), ("--kind", "prewarm")])
def test_prewarm_policies_cannot_be_checked(flags: tuple[str, ...], capsys: Captured) -> None:
    """The message is about the policy, whether or not its kind was given."""
    name = min(plugins.BUILT_IN["prewarm"].keys() - plugins.BUILT_IN["batch"].keys())
    assert 2 == command.main(["policies", "--check", name, *flags])
    assert (
        f"--check = {name!r}: expected a batch or scale policy; prewarm policies cannot be checked"
        in capsys.readouterr().err
    )


def test_policies_as_text(capsys: Captured) -> None:
    """The table names each policy and its parameters."""
    assert 0 == command.main(["policies"])
    printed = capsys.readouterr().out
    assert "deadline  " in printed
    assert "built-in; parameters: size=0, wait_s=0.01" in printed


def test_broken_policy_is_listed_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """A policy that cannot be imported is listed with the reason, among the others."""
    install(tmp_path, "broken", "carpool.batch_policies", "odd = no_such_module:Odd")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert 0 == policies_command.main(["--json", "--kind", "batch"])
    listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)["policies"]}
    assert {*plugins.BUILT_IN["batch"], "odd"} == set(listed)
    assert "No module named 'no_such_module'" in listed["odd"]["error"]
