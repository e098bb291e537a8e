"""``carpool register``: makes variants of a trained model, measures and registers them.

Every variant is measured in its own process before it is registered. A variant that is already
registered, made of the same file by the same recipe and measured with the same data, is not
measured again.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from carpool.errors import CarpoolError, ConfigError, FunctionFault
from carpool.process import exit_status
from carpool.setting_types import memory
from carpool.validation import rules
from carpool.validation.problems import Problems, nearest
from watchdog_plugin.onnx.session import OnnxSession
from watchdog_plugin.registration.recipes import RECIPES, RecipeFailed
from watchdog_plugin.registration.registry import Registry, digest, file_name
from watchdog_plugin.registration.validation import read_validation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["main"]

_BYTES_PER_MB = 10**6
_SHOWN = 300  # characters of a failed process's output
_LONGEST = 20  # characters of an architecture's part of a variant's name
_THREADS = (1, 2)  # by default
_APP = re.compile(r"[A-Za-z0-9._-]{1,63}")


class _Job(NamedTuple):
    """A variant to be made; ``measured`` is the digest of what it is measured with."""

    name: str
    recipe: str
    threads: int
    file: str
    measured: str

    def is_done(self, entry: Mapping[str, Any]) -> bool:
        """Return whether ``entry`` is this variant, already registered."""
        return (self.file, self.measured) == (entry.get("file"), entry.get("measured"))


class _Chosen(NamedTuple):
    """The settings of one call of the command."""

    model: Path
    app: str
    validation: Path
    registry: Path
    architecture: str
    threads: list[int]
    batches: list[int]
    recipes: list[str]
    disk_bytes: float
    timeout_s: float


def main(argv: list[str]) -> int:
    """Register variants; return 0 if at least one variant of the model is registered.

    Raises:
        CarpoolError: The model, the data or the flags cannot be used, or no variant works.
    """
    chosen = _parsed(argv)
    # What is wrong with the file or the data is wrong for every variant.
    read_validation(chosen.validation, OnnxSession(chosen.model, 1).signature)
    registry = Registry(chosen.registry, chosen.app, chosen.disk_bytes)
    failures = 0
    with registry.opened():
        known = {entry["name"]: entry for entry in registry.entries()}
        jobs = list(_jobs(chosen))
        for number, job in enumerate(jobs, start=1):
            prefix = f"[{number}/{len(jobs)}] {job.name}: "
            if job.is_done(known.get(job.name, {})) and registry.file(job.file).is_file():
                _say(f"{prefix}is registered")
                continue
            try:
                entry = _made(chosen, registry, job)
                registry.add(entry)
            except (RecipeFailed, FunctionFault) as error:
                failures += 1
                _say(f"{prefix}left out: {error}")
                continue
            _say(prefix + _described(entry))
        count = len(registry.entries())
    if failures == len(jobs):
        msg = f"none of {len(jobs)} variants of {str(chosen.model)!r} works, so none is registered"
        raise FunctionFault(msg)
    left_out = f", {failures} left out" if failures else ""
    noun = "variant" if count == 1 else "variants"
    _say(f"{count} {noun} of {chosen.app} in {registry.listing}{left_out}")
    return 0


def _jobs(chosen: _Chosen) -> Iterator[_Job]:
    contents = digest(chosen.model.read_bytes())
    measured = digest(chosen.validation.read_bytes(), repr(chosen.batches).encode())
    for recipe in chosen.recipes:
        file = file_name(chosen.architecture, recipe, contents)
        for threads in chosen.threads:
            name = f"{chosen.architecture}-{recipe}-t{threads}"
            yield _Job(name, recipe, threads, file, measured)


def _made(chosen: _Chosen, registry: Registry, job: _Job) -> dict[str, Any]:
    """Make and measure a variant, and return its entry."""
    path = registry.file(job.file)
    if not path.is_file():
        fresh = path.with_suffix(".new")
        try:
            RECIPES[job.recipe](chosen.model, fresh)
        except RecipeFailed:
            raise
        except Exception as error:  # the runtime's errors share no base class
            full = shutil.disk_usage(path.parent).free < chosen.model.stat().st_size
            why = "; the disk is full" if full else ""  # which not every tool says
            msg = f"it cannot be created: {str(error)[:_SHOWN]}{why}"
            raise RecipeFailed(msg) from error
        fresh.replace(path)
        registry.check_disk(path)
    measurements = _tried(chosen, path, job.threads)
    return {
        "name": job.name,
        "architecture": chosen.architecture,
        "cpu": job.threads,
        "gpu": 0,
        **measurements,
        "file": job.file,
        "measured": job.measured,
    }


def _tried(chosen: _Chosen, path: Path, threads: int) -> dict[str, Any]:
    """Measure a variant in its own process, and return the results.

    Raises:
        FunctionFault: The process crashed, failed or timed out.
        ConfigError: The data do not fit the model.
    """
    command = [sys.executable, "-m", "watchdog_plugin.registration.measuring_process", str(path)]
    command += [str(chosen.validation), str(threads), ",".join(map(str, chosen.batches))]
    command += [str(time.monotonic()), str(os.getpid())]
    try:
        ran = subprocess.run(  # noqa: S603  our own module
            command, capture_output=True, text=True, timeout=chosen.timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        msg = f"it took longer than {chosen.timeout_s:g} s"
        raise FunctionFault(msg) from error
    output = ran.stderr.strip()[-_SHOWN:]
    if ran.returncode == ConfigError.exit_code:
        raise CarpoolError(output)
    if ran.returncode < 0:
        msg = f"it crashed ({exit_status.in_words(ran.returncode)}): {output}"
        raise FunctionFault(msg)
    if ran.returncode:
        msg = f"it fails: {output}"
        raise FunctionFault(msg)
    measurements: Any = rules.loads(ran.stdout.splitlines()[-1])
    return dict(measurements)


def _described(entry: dict[str, Any]) -> str:
    rates = [int(batch) / ms * 1000 for batch, ms in entry["latencies_ms"].items()]
    first_ms = next(iter(entry["latencies_ms"].values()))
    return (
        f"accuracy {entry['accuracy']:.4f}, {first_ms:.3g} ms alone, at most {max(rates):.0f} "
        f"requests/s, loads in {entry['load_s']:.2g} s, {entry['memory_mb']:.0f} MB"
    )


def _parsed(argv: list[str]) -> _Chosen:
    parser = argparse.ArgumentParser(
        prog="carpool register", description="Make, measure and register variants of a model."
    )
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL.onnx", help="an ONNX file")
    add("--app", required=True, help="name of the application that uses the model")
    add("--validation", required=True, type=Path, help="numpy.savez file with inputs and labels")
    add(
        "--registry",
        type=Path,
        default=Path("variants"),
        help="folder for the variants (default: variants)",
    )
    add("--architecture", help="name of the architecture (default: the file's name)")
    cores = os.cpu_count() or 1
    most = ",".join(str(count) for count in _THREADS if count <= cores)
    expected = "cores of an instance (default: 1,2; on a machine with one core 1)"
    add("--threads", default=most, help=expected)
    add("--batch", default="1,2,4,8,16,32", help="batch sizes to measure (default: 1,2,4,8,16,32)")
    add("--recipes", default=",".join(RECIPES), help=f"recipes for variants ({','.join(RECIPES)})")
    add(
        "--disk",
        default="1Gi",
        help="maximum disk space for the application's models (default: 1Gi)",
    )
    add(
        "--timeout",
        type=float,
        default=300.0,
        help="time limit for measuring a variant, in seconds (default: 300)",
    )
    flags = parser.parse_args(argv)
    problems = Problems()
    architecture = re.sub(r"[^a-z0-9]+", "-", (flags.architecture or flags.model.stem).lower())
    recipes = flags.recipes.split(",")
    for recipe in recipes:
        if recipe not in RECIPES:
            expected = f"one of {', '.join(RECIPES)}"
            problems.add("--recipes", recipe, expected, nearest(recipe, RECIPES))
    if not flags.model.is_file():
        problems.add("MODEL.onnx", flags.model, "an existing file")
    if not _APP.fullmatch(flags.app):
        problems.add("--app", flags.app, "a name of letters, digits, '.', '_' or '-'")
    try:
        disk_mb = memory().read(flags.disk)
    except ValueError:
        disk_mb = 0.0
        problems.add("--disk", flags.disk, memory().expected)
    threads = _numbers(problems, "--threads", flags.threads)
    if threads and max(threads) > cores:
        problems.add("--threads", flags.threads, f"at most {cores}, the cores of this machine")
    batches = _numbers(problems, "--batch", flags.batch)
    if not flags.timeout > 0:
        problems.add("--timeout", flags.timeout, "seconds above 0")
    problems.raise_if_any()
    return _Chosen(
        model=flags.model,
        app=flags.app,
        validation=flags.validation,
        registry=flags.registry,
        architecture=architecture.strip("-")[:_LONGEST].strip("-") or "model",
        threads=threads,
        batches=batches,
        recipes=recipes,
        disk_bytes=disk_mb * _BYTES_PER_MB,
        timeout_s=flags.timeout,
    )


def _numbers(problems: Problems, name: str, text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        problems.add(name, text, "whole numbers of at least 1, with commas between")
        return []
    return sorted({int(part) for part in parts})


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
