"""``python -m benchmarks servers``: Carpool and other servers, same model, same load, same run."""

from __future__ import annotations

import argparse
import math
import resource
import time
from pathlib import Path

from benchmarks import machine
from benchmarks.cases import CASES
from benchmarks.records import Records
from benchmarks.report import markdown
from benchmarks.rounds import Course
from benchmarks.servers import SERVERS
from carpool import durations
from carpool.validation.problems import Problems

__all__ = ["main"]

_OUT = Path(__file__).parent / "results" / "servers.jsonl"
_OPEN_FILES = 16_384  # the connections of an overloaded server, on either side


def main(argv: list[str]) -> int:
    """Measure, writing each point as it arrives; return 1 if no server could be measured."""
    flags = _flags(argv)
    _allow_open_files()
    records = Records(flags.out, resume=flags.resume)
    settings = {"span_s": flags.span, "resolution": flags.resolution}
    _refuse_other_settings(records, settings)
    records.add(
        "run",
        command=" ".join(["python -m benchmarks servers", *argv]),
        started=time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        commit=machine.commit(),
        machine=machine.machine(),
        settings=settings,
    )
    course = Course(
        records=records,
        cases=[CASES[name] for name in flags.case],
        servers=[SERVERS[name] for name in flags.server],
        span_s=flags.span,
        resolution=flags.resolution,
        repeats=flags.repeats,
        closer=flags.repeats if flags.closer is None else flags.closer,
        tuning=not flags.no_tuning,
        budget_s=flags.budget,
        after_round=lambda: _write_page(records, flags.out),
    )
    course.run()
    return 0 if records.find("point") or not flags.repeats else 1


def _write_page(records: Records, out: Path) -> None:
    out.with_suffix(".md").write_text(markdown(records))


def _refuse_other_settings(records: Records, settings: dict[str, float]) -> None:
    """Refuse to mix points that were measured with different settings."""
    before = records.last("run")
    if before and before["settings"] != settings:
        problems = Problems()
        was = " ".join(f"--{k.partition('_s')[0]} {v:g}" for k, v in before["settings"].items())
        problems.add("--resume", "other settings", f"{was} as in the file, or another --out")
        problems.raise_if_any()


def _allow_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if 0 <= soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _flags(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks servers", description=__doc__)
    add = parser.add_argument
    add("--server", default=",".join(SERVERS), help="names, separated by commas (all)")
    add("--case", default=",".join(CASES), help="names, separated by commas (all)")
    add("--repeats", type=int, default=5, help="interleaved rounds (5); 0 tunes only")
    add("--closer", type=int, metavar="N", help="rounds that look closer than at the rate (all)")
    add("--budget", metavar="DURATION", help="start no round that would end later, e.g. 30m")
    add("--span", type=float, default=2.0, metavar="SECONDS", help="of one probe (2)")
    add("--resolution", type=float, default=0.04, help="of the search for the highest rate (0.04)")
    add("--no-tuning", action="store_true", help="leave every waiting time at its first choice")
    add("--resume", action="store_true", help="measure only what --out does not have yet")
    add("--out", type=Path, default=_OUT, help="JSON lines; a page, .md, goes beside it")
    flags = parser.parse_args(argv)
    problems = Problems()
    flags.server = _names(problems, "--server", flags.server, list(SERVERS))
    flags.case = _names(problems, "--case", flags.case, list(CASES))
    try:
        flags.budget = durations.parse(flags.budget) if flags.budget else math.inf
    except ValueError:
        problems.add("--budget", flags.budget, "a duration such as 30m")
    problems.raise_if_any()
    return flags


def _names(problems: Problems, flag: str, text: str, known: list[str]) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            problems.unknown(flag, known, name)
    return names
