"""The matrix: its cells, common requests, kept rows and the table."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest

from carpool.arrivals.processes import timestamps
from carpool.errors import ConfigError
from simulator.matrix import command
from simulator.matrix.cells import BILLINGS, Cell, catalogue
from simulator.matrix.models import OBJECTIVES
from simulator.matrix.rows import Row, Rows
from simulator.matrix.summary import as_dict, standings, table
from simulator.matrix.traces import TRACES

if TYPE_CHECKING:
    from pathlib import Path

SHORT = ["--trace", "on-off", "--model", "line", "--billing", "reserved", "--seeds", "1"]
SHORT += ["--horizon", "20s", "--policy", "openfaas", "--policy", "infless"]


def test_sample_of_a_sixth_of_cells_is_balanced() -> None:
    """In a sixth of the cells every trace meets every model once, with the rest balanced."""
    known = catalogue()
    cells = known.cells(1 / 6)
    assert len(cells) == len(known.traces) * len(known.models)
    assert len({(cell.trace, cell.model) for cell in cells}) == len(cells)
    for part in ("objective", "billing"):
        counts = Counter(getattr(cell, part) for cell in cells).values()
        assert max(counts) - min(counts) <= 2
    every = known.cells()
    assert len(set(every)) == len(every) == len(cells) * len(OBJECTIVES) * len(BILLINGS)


@pytest.mark.parametrize("name", TRACES)
def test_a_load_has_its_mean(name: str) -> None:
    """Over several seeds a load has its mean, and one seed always draws the same requests."""
    horizon_s, rate_rps = 1200.0, 40.0
    scaled = {"sporadic": 0.3, "timers": 0.25}.get(name, 1.0)
    means = []
    for seed in range(4):
        first, again = (
            timestamps(TRACES[name](rate_rps, horizon_s, seed), horizon_s, (seed, 1, 0))
            for _ in range(2)
        )
        assert np.array_equal(first, again)
        means.append(len(first) / horizon_s)
    assert np.mean(means) == pytest.approx(rate_rps * scaled, rel=0.15)


def test_traces_are_read_from_a_folder(tmp_path: Path) -> None:
    """Of a longer trace, the stretch that changes the most is used, at the requested rate."""
    (tmp_path / "traces").mkdir()
    (tmp_path / "profiles").mkdir()
    rates = [60, 60, 60, 60, 600, 6, 600, 6]
    lines = [f"{60 * at},{rate}" for at, rate in enumerate(rates)]
    text = "\n".join(["start_s,requests_per_minute", *lines])
    (tmp_path / "traces" / "own.csv").write_text(text)
    table = "cpu_threads,gpu_percent,batch,latency_ms\n2,0,1,20\n2,0,4,50\n"
    (tmp_path / "profiles" / "mine.csv").write_text(table)
    known = catalogue([tmp_path])
    trace = known.traces["own"](10.0, 240.0, 1)
    assert trace.mean_rate == pytest.approx(10.0)
    assert trace.rate(30.0) == pytest.approx(100 * trace.rate(90.0))
    (function,) = known.scenario(Cell("own", "mine", "medium", "reserved"), 240.0, 1).functions
    assert function.slo_s == pytest.approx(0.080)


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("profiles/mine.csv", "cpu_threads,gpu_percent,batch,latency_ms\n2,0,4,50\n", "batch 1"),
        ("traces/own.csv", "start_s,requests_per_minute\n0,0\n60,0\n", "a rate above 0"),
    ],
)
def test_unusable_tables_and_traces_are_refused(
    tmp_path: Path, path: str, text: str, said: str
) -> None:
    """A table without batch 1 and a trace without requests are errors."""
    file = tmp_path / path
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(ConfigError, match=said) as refused:
        command.main(["--data", str(tmp_path), *SHORT])
    assert path in str(refused.value)


def test_folder_without_traces_and_profiles_is_refused(tmp_path: Path) -> None:
    """A mistaken folder is an error; otherwise only the built-in cells would run."""
    with pytest.raises(ConfigError, match="traces/ or profiles/"):
        command.main(["--data", str(tmp_path), *SHORT])


def test_stretch_without_requests_is_used_only_as_last_resort(tmp_path: Path) -> None:
    """A stretch without requests is used only if no other has requests, and then is an error."""
    (tmp_path / "traces").mkdir()
    path = tmp_path / "traces" / "own.csv"
    path.write_text("start_s,requests_per_minute\n0,0\n100,60\n")
    own = catalogue([tmp_path]).traces["own"]
    assert own(10.0, 20.0, 1).mean_rate == pytest.approx(10.0)
    path.write_text("start_s,requests_per_minute\n0,0\n100,60\n130,0\n")
    late = catalogue([tmp_path]).traces["own"]
    with pytest.raises(ConfigError, match=r"own\.csv"):
        late(10.0, 90.0, 1)


def test_files_that_cannot_be_written_are_reported_before_running(tmp_path: Path) -> None:
    """A path in no folder, and one that is a folder, are errors before anything is run."""
    flags = ["--out", str(tmp_path), "--report", str(tmp_path / "no" / "out.html")]
    with pytest.raises(ConfigError) as refused:
        command.main([*SHORT, *flags])
    assert ["--out", "--report"] == [problem.name for problem in refused.value.problems]


def test_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    """A file of something else is an error that names its line."""
    out = tmp_path / "rows.jsonl"
    out.write_bytes(b"\xff\xfe\x00\n")
    with pytest.raises(ConfigError, match=r"rows\.jsonl"):
        command.main([*SHORT, "--out", str(out)])


def test_existing_rows_are_not_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second run adds nothing and prints the same, and only a torn row is made again."""
    out = tmp_path / "rows.jsonl"
    assert command.main([*SHORT, "--out", str(out)]) == 0
    first = capsys.readouterr().out
    whole = out.read_text()
    assert whole.count("\n") == len(OBJECTIVES) * 2
    assert command.main([*SHORT, "--out", str(out)]) == 0
    assert (capsys.readouterr().out, out.read_text()) == (first, whole)
    out.write_text(whole[:-20])
    assert command.main([*SHORT, "--out", str(out)]) == 0
    again = [json.loads(line) for line in out.read_text().splitlines()]
    kept = ("cell", "policy", "seed", "requests", "cost", "missed", "bound")
    before = [json.loads(line) for line in whole.splitlines()]
    assert [[row[key] for key in kept] for row in again] == [
        [row[key] for key in kept] for row in before
    ]


def test_share_without_a_cell_of_the_named_parts_is_refused() -> None:
    """A share that leaves no cell is an error instead of an empty table."""
    flags = ["--trace", "flash-crowd", "--objective", "tight", "--share", "0.01"]
    with pytest.raises(ConfigError, match=r"--share = '0\.01': expected a share that has cells"):
        command.main([*flags, "--seeds", "1", "--horizon", "10s"])


def test_json_has_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON has the policies over all, and by trace, model, objective and billing rule."""
    assert command.main([*SHORT, "--objective", "loose", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [each["policy"] for each in document["policies"]] == ["openfaas", "infless"]
    assert document["objective"]["loose"] == document["policies"]
    assert document["policies"][0]["over_bound_interval"] is None  # one seed


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--trace", "stedy"], "steady"),
        (["--seeds", "one"], "1-3"),
        (["--horizon", "20"], "20m"),
        (["--share", "2"], "1 at most"),
        (["--share", "0"], "above 0"),
        (["--policy", "infles"], "infless"),
    ],
)
def test_wrong_flags_are_reported_before_running(flags: list[str], said: str) -> None:
    """Wrong flags are reported before anything is run."""
    with pytest.raises(ConfigError, match=said):
        command.main(flags)


def test_file_with_other_content_is_refused(tmp_path: Path) -> None:
    """A file with other content is refused with the line number."""
    path = tmp_path / "rows.jsonl"
    path.write_text('{"kind": "run"}\n')
    with pytest.raises(ConfigError, match=r"rows\.jsonl:1"):
        Rows(path)


def test_rows_name_the_commit_that_made_them(tmp_path: Path) -> None:
    """New rows name their commit, and older rows without one are read and kept unchanged."""
    path = tmp_path / "rows.jsonl"
    known = dataclasses.asdict(row("a", "p", 2.0, 0.0))
    del known["commit"]
    old = json.dumps(known)
    path.write_text(old + "\n")
    Rows(path, "1234abc").add(row("b", "p", 2.0, 0.0))
    assert ["", "1234abc"] == [each.commit for each in Rows(path).all]
    assert path.read_text().startswith(old + "\n")


def row(cell: str, policy: str, cost: float, missed: float, seed: int = 1) -> Row:
    """Return a row with a bound of one."""
    return Row(cell, 60.0, seed, policy, 100, cost, 1.0, missed, 1.0, 50.0, 0.1, 1.0)


def test_standings_match_manual_calculation() -> None:
    """The standings of two cells, policies and seeds match a manual calculation."""
    rows = [
        *[row("a", "one", 2.0, 0.001, seed) for seed in (1, 2)],
        *[row("a", "two", 4.0, 0.02, seed) for seed in (1, 2)],
        row("b", "one", 8.0, 0.05, 1),
        row("b", "one", 8.0, 0.03, 2),
        *[row("b", "two", 4.0, 0.002, seed) for seed in (1, 2)],
    ]
    one, two = standings(rows)
    assert one.over_bound == pytest.approx(4.0) == two.over_bound
    assert one.over_bound_interval == pytest.approx(0.0, abs=1e-9)
    assert one.missed == pytest.approx((0.001 + 0.04) / 2)
    assert one.missed_interval == pytest.approx(12.71 * 0.01 / math.sqrt(2) / math.sqrt(2), rel=0.1)
    assert (one.held, two.held) == (1, 2)
    assert (one.cheapest, two.cheapest) == (1, 1)  # in b one does not hold
    assert (one.costs_more, two.costs_more) == (1, 1)
    assert (one.misses_more, two.misses_more) == (1, 1)
    assert (one.kept, two.kept) == (1, 1)


def test_failed_and_free_cells_are_in_table() -> None:
    """Failed and free cells have no cost over the bound, and failed ones are counted."""
    nothing = dataclasses.replace(row("b", "one", 0.0, 0.0), requests=0, bound=0.0)
    failed = dataclasses.replace(row("b", "two", 0.0, 1.0), failure="no plan")
    rows = [row("a", "one", 2.0, 0.0), row("a", "two", 3.0, 0.0), nothing, failed]
    one, two = standings(rows)
    assert [one.over_bound, two.over_bound] == pytest.approx([2.0, 3.0])
    assert ((0, 2), (1, 2)) == ((one.failed, one.cells), (two.failed, two.cells))
    heads, _, *lines = table([one, two]).splitlines()
    assert ["0", "1"] == [line.split(" | ")[heads.split(" | ").index("failed")] for line in lines]
    (alone,) = standings([nothing])
    assert alone.over_bound == math.inf
    assert as_dict(alone)["over_bound"] is None
