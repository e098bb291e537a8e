"""``carpool compare --matrix``: policies on many loads, models, objectives and billing rules.

Every cell is one function, simulated with instances that load for two seconds and the same requests
for every policy. Costs are compared with a lower bound that needs perfect foresight.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carpool import setting_types
from carpool.errors import ConfigError, Problem
from carpool.setting_spec import read_value
from carpool.validation.output_file import check_output, write_output
from carpool.validation.problems import Problems
from scaler.policy_choice import chosen_policy
from simulator.matrix import report
from simulator.matrix.cells import BILLINGS, POLICIES, catalogue
from simulator.matrix.models import OBJECTIVES
from simulator.matrix.rows import Rows
from simulator.matrix.runs import Runs
from simulator.matrix.summary import as_dict, by_part, standings, table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from simulator.matrix.cells import Catalogue, Cell
    from simulator.matrix.rows import Row

__all__ = ["main"]

_PARTS = ("trace", "model", "objective", "billing")
_SHARE = 1 / 6
_HORIZON = setting_types.duration("a duration such as 20m", lambda v: v > 0)


def main(
    argv: list[str],
    prog: str = "carpool compare --matrix",
    out: Path | None = None,
    commit: str = "",
) -> int:
    """Simulate what is missing and print the results.

    Args:
        argv: Flags.
        prog: Name of the command in messages.
        out: Default path of the results file.
        commit: Commit of the code, noted in new rows; empty if unknown.

    Raises:
        ConfigError: flags, files or policies that cannot be used.
    """
    flags = _parser(prog).parse_args(argv)
    problems = Problems()
    seeds = _seeds(flags.seeds, problems)
    horizon_s = read_value(_HORIZON, "--horizon", flags.horizon, problems)
    named = any(getattr(flags, part) for part in _PARTS)
    share = flags.share if flags.share is not None else 1.0 if named else _SHARE
    if not 0 < share <= 1:
        problems.add("--share", flags.share, "a number above 0, 1 at most")
    for flag in ("out", "report", "picture"):
        path = getattr(flags, flag)
        if path:
            check_output(f"--{flag}", path, problems)
    for folder in flags.data:
        if not any((folder / part).is_dir() for part in ("traces", "profiles")):
            problems.add("--data", folder, "a folder with traces/ or profiles/")
    if flags.only_kept and not (flags.out or out):
        problems.add("--only-kept", "without --out", "the file of rows, as --out FILE.jsonl")
    problems.raise_if_any()
    rows = Rows(flags.out or out, commit)
    if flags.only_kept:
        requested_rows = _kept(rows, flags)
    else:
        known = catalogue(flags.data)
        cells = _cells(known, flags, share)
        for policy in flags.policy or POLICIES:
            chosen_policy(policy, POLICIES)  # a mistake shows before anything is run
        runs = Runs(known, cells, flags.policy or list(POLICIES), seeds, horizon_s)
        runs.run(rows, _say)
        requested_rows = [
            row
            for seed in seeds
            for cell in cells
            for row in rows.find(cell.name, horizon_s, seed)
            if row.policy in runs.policies
        ]
    _tell(requested_rows, as_json=flags.json)
    _draw(requested_rows, flags)
    return 0


def _kept(rows: Rows, flags: argparse.Namespace) -> list[Row]:
    """Return the file's rows for the given policies and parts; for none given, all rows.

    Raises:
        ConfigError: the file has no such rows.
    """
    named = [(at, getattr(flags, part)) for at, part in enumerate(_PARTS) if getattr(flags, part)]
    chosen = [
        row
        for row in rows.all
        if not flags.policy or row.policy in flags.policy
        if all(row.cell.split("/")[at] in wanted for at, wanted in named)
    ]
    if not chosen:
        expected = "a file with rows of these cells and policies"
        raise ConfigError([Problem("--only-kept", str(flags.out or "no rows"), expected)])
    return chosen


def _draw(rows: Sequence[Row], flags: argparse.Namespace) -> None:
    sys.stdout.flush()
    for option, draw in (("report", report.page), ("picture", report.picture)):
        if path := getattr(flags, option):
            write_output(f"--{option}", path, draw(rows))


def _tell(rows: Sequence[Row], *, as_json: bool) -> None:
    parts = {part: by_part(rows, at) for at, part in enumerate(_PARTS)}
    if as_json:
        document: dict[str, Any] = {"policies": [as_dict(each) for each in standings(rows)]}
        for part, summaries in parts.items():
            document[part] = {name: [as_dict(s) for s in each] for name, each in summaries.items()}
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return
    seeds, cells = len({row.seed for row in rows}), len({row.cell for row in rows})
    sys.stdout.write(f"{cells} cells, {seeds} seeds\n\n{table(standings(rows))}")
    for part, summaries in parts.items():
        for name, each in summaries.items():
            sys.stdout.write(f"\n{part} {name}\n\n{table(each)}")


def _cells(known: Catalogue, flags: argparse.Namespace, share: float) -> list[Cell]:
    """Return the given share of all cells, restricted to the named parts.

    Raises:
        ConfigError: a name that does not exist, or no cell of this share.
    """
    problems = Problems()
    names: tuple[Collection[str], ...] = (known.traces, known.models, OBJECTIVES, BILLINGS)
    for part, chosen in zip(_PARTS, names, strict=True):
        for name in getattr(flags, part):
            if name not in chosen:
                problems.unknown(f"--{part}", list(chosen), name)
    problems.raise_if_any()
    named = {part: getattr(flags, part) for part in _PARTS if getattr(flags, part)}
    cells = [
        cell
        for cell in known.cells(share)
        if all(getattr(cell, part) in wanted for part, wanted in named.items())
    ]
    if not cells:
        expected = "a share that has cells of these parts; without --share, all of them run"
        raise ConfigError([Problem("--share", f"{share:g}", expected)])
    return cells


def _seeds(text: str, problems: Problems) -> list[int]:
    """Parse seeds such as ``3``, ``1,4`` or ``1-3``."""
    try:
        seeds: list[int] = []
        for part in text.split(","):
            first, _, last = part.partition("-")
            seeds += range(int(first), int(last or first) + 1)
    except ValueError:
        seeds = []
    if not seeds:
        problems.add("--seeds", text, "whole numbers such as 1-3 or 1,4")
    return list(dict.fromkeys(seeds))


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _parser(prog: str) -> argparse.ArgumentParser:
    about = (
        "Compare policies on many loads, models, objectives and billing rules. Every cell is one "
        "function with the same requests for every policy; instances take two seconds to start. "
        "Costs are compared with a lower bound that needs perfect foresight."
    )
    parser = argparse.ArgumentParser(prog=prog, description=about)
    add = parser.add_argument
    add(
        "--policy",
        action="append",
        help=f"a scaling policy; may be repeated (default: {', '.join(POLICIES)})",
    )
    add(
        "--share",
        type=float,
        help="share of all cells, evenly spread (default: a sixth; all if parts are named)",
    )
    for part, names in zip(_PARTS, _listed(), strict=True):
        expected = f"only cells with this value; may be repeated ({', '.join(names)})"
        add(f"--{part}", action="append", default=[], metavar="NAME", help=expected)
    add("--seeds", default="1-3", help="seeds of the requests, such as 1-3 or 1,4 (default: 1-3)")
    add("--horizon", default="20m", help="simulated time of each run (default: 20m)")
    expected = "a folder with traces/*.csv and profiles/*.csv for more cells; may be repeated"
    add("--data", action="append", type=Path, default=[], metavar="FOLDER", help=expected)
    expected = "file of rows, one JSON object per line; rows already in it are not run again"
    add("--out", type=Path, metavar="FILE.jsonl", help=expected)
    expected = "run nothing; show all rows in --out, of any horizon and seed"
    add("--only-kept", action="store_true", help=expected)
    add("--json", action="store_true", help="print JSON instead of tables")
    add("--report", type=Path, metavar="FILE.html", help="write a page with heat maps as well")
    add("--picture", type=Path, metavar="FILE.svg", help="write the heat maps of all cells")
    return parser


def _listed() -> Iterable[Iterable[str]]:
    own = catalogue()
    return own.traces, own.models, OBJECTIVES, BILLINGS
