"""Poisson arrivals and arrivals from a trace."""

from __future__ import annotations

import gzip
import math
import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.arrivals.markov import mmpp2
from carpool.arrivals.processes import (
    ArrivalProcess,
    Poisson,
    Trace,
    read_trace,
    timestamps,
)
from carpool.errors import ConfigError
from tests.scaler.windows import mean_batch_and_wait

if TYPE_CHECKING:
    from pathlib import Path

    from tests.measured import Data

HEADER = "start_s,requests_per_minute"
STEPS = Trace((0.0, 100.0, 200.0), (50.0, 0.0, 200.0), 300.0)

PROCESSES = st.one_of(
    st.builds(Poisson, st.just(0.0) | st.floats(0.01, 500)),
    st.builds(
        lambda steps: Trace(
            tuple(float(sum(length for length, _ in steps[:i])) for i in range(len(steps))),
            tuple(rate for _, rate in steps),
            float(sum(length for length, _ in steps)),
        ),
        st.lists(
            st.tuples(st.integers(1, 20), st.just(0.0) | st.floats(0.01, 200)),
            min_size=1,
            max_size=5,
        ),
    ),
    st.builds(
        lambda low, high, leave, back: mmpp2((low, high), (leave, back)),
        *(st.floats(0, 100), st.floats(1, 300), st.floats(0.01, 50), st.floats(0.01, 50)),
    ),
)


@given(process=PROCESSES, until_s=st.floats(0, 100), seed=st.integers(0, 2**32))
def test_arrivals_are_ascending_and_before_the_end(
    process: ArrivalProcess, until_s: float, seed: int
) -> None:
    """The arrivals of any process are in order, within the horizon and reproducible."""
    times = timestamps(process, until_s, seed)
    assert (np.diff(times) >= 0).all()
    assert ((0 <= times) & (times < until_s)).all()
    assert times.tolist() == timestamps(process, until_s, seed).tolist()
    assert times.tolist() == [time for chunk in process.chunks(until_s, seed) for time in chunk]


@given(process=PROCESSES, first=st.floats(0, 60), more=st.floats(0, 60), seed=st.integers(0, 99))
def test_longer_horizon_keeps_earlier_arrivals(
    process: ArrivalProcess, first: float, more: float, seed: int
) -> None:
    """A longer horizon adds arrivals and changes none of the earlier ones."""
    short, long = (timestamps(process, until_s, seed) for until_s in (first, first + more))
    assert short.tolist() == long[long < first].tolist()


def test_poisson_gaps_have_given_rate_and_no_correlation() -> None:
    """Counts, mean gap, variation and correlation of the gaps are those of a Poisson process."""
    process = Poisson(400.0)
    times = timestamps(process, 500.0, seed=3)
    between = np.diff(times)
    assert pytest.approx(400.0 * 500.0, rel=0.01) == len(times)
    assert pytest.approx(1 / 400, rel=0.01) == between.mean()
    assert pytest.approx(1.0, abs=0.02) == between.var() / between.mean() ** 2
    assert pytest.approx(0.0, abs=0.01) == np.corrcoef(between[1:], between[:-1])[0, 1]
    assert (400.0, 400.0) == (process.mean_rate, process.rate(17.0))


@pytest.mark.parametrize(
    ("rate_rps", "batch", "wait_s", "mean_batch", "mean_wait_s"),
    [(10, 4, 0.2, 2.78198, 0.10865), (20, 4, 0.2, 3.65200, 0.06961)],
)
def test_batches_of_poisson_arrivals(
    rate_rps: float, batch: int, wait_s: float, mean_batch: float, mean_wait_s: float
) -> None:
    """Size-or-window batches have the mean size and wait of their exact law (cf. BATCH, SC'20)."""
    times = timestamps(Poisson(rate_rps), 200_000 / rate_rps, seed=1)
    assert pytest.approx((mean_batch, mean_wait_s), rel=0.01) == mean_batch_and_wait(
        times, batch, wait_s
    )


def test_different_seeds_give_different_arrivals() -> None:
    """Seeds are numbers or sequences of numbers, and different ones give different arrivals."""
    seeds = (1, 2, (1, 1), (1, 2), (2, 1))
    runs = [timestamps(Poisson(50.0), 2.0, seed).tolist() for seed in seeds]
    assert len(seeds) == len({tuple(run) for run in runs})


def test_trace_steps_have_their_own_rates() -> None:
    """Each step has the arrivals of its own rate, with none at rate 0 or after the end."""
    times = timestamps(STEPS, 1e9, seed=5)
    counts = np.histogram(times, bins=[0, 100, 200, 300])[0].tolist()
    assert [5000, 0, 20000] == pytest.approx(counts, rel=0.05)
    assert sum(counts) == len(times)
    assert pytest.approx(250 / 3) == STEPS.mean_rate


@pytest.mark.parametrize(
    ("at_s", "rate_rps"), [(-1, 0), (0, 50), (99.9, 50), (100, 0), (200, 200), (300, 0), (999, 0)]
)
def test_trace_rate_is_step_function(at_s: float, rate_rps: float) -> None:
    """The rate of a trace is a step function that is 0 outside the trace."""
    assert rate_rps == STEPS.rate(at_s)


def test_gaps_span_empty_steps() -> None:
    """A gap may span a step without arrivals, and nothing arrives after the end of a trace."""
    times = timestamps(STEPS, math.inf, seed=5)
    assert 100 < np.diff(times).max() < 101
    assert times[-1] < 300


def test_chunks_are_bounded() -> None:
    """No process holds millions of requests in memory at once."""
    for process in (Poisson(1e5), Trace((0.0,), (1e5,), 60.0), mmpp2((1e5, 2e5), (1e-6, 1e-6))):
        sizes = [len(chunk) for chunk in process.chunks(20.0, seed=1)]
        assert max(sizes) < 200_000
        assert sum(sizes) > 1_900_000


def write(folder: Path, text: str) -> Path:
    """Write a trace file and return its path."""
    path = folder / "trace.csv"
    path.write_text(text)
    return path


def test_a_trace_file_is_read(tmp_path: Path) -> None:
    """Rates are scaled, per second and from time 0; the last row is as long as the one before."""
    trace = read_trace(write(tmp_path, f"{HEADER}\n600,6\n1200,0\n2400,12\n"), scale=10)
    assert Trace((0.0, 600.0, 1800.0), (1.0, 0.0, 2.0), 3000.0) == trace


def test_a_trace_of_one_row_lasts_a_minute(tmp_path: Path) -> None:
    """The only rate of a trace of one row holds for one minute."""
    assert Trace((0.0,), (1.0,), 60.0) == read_trace(write(tmp_path, f"{HEADER}\n5,60\n"))


def test_a_trace_may_have_unix_times(tmp_path: Path) -> None:
    """Starts may be Unix times, as exports of monitoring systems have them."""
    trace = read_trace(write(tmp_path, f"{HEADER}\n1795870851,60\n1795870911,120\n"))
    assert Trace((0.0, 60.0), (1.0, 2.0), 120.0) == trace


@pytest.mark.parametrize(
    "text",
    [
        f"\ufeff{HEADER}\r\n0,6\r\n60,12\r\n",
        f'{HEADER}\n"0","6"\n\n60 , 12',
        " start_s , requests_per_minute \n0,6.0\n6e1,+12\n",
    ],
)
def test_traces_of_spreadsheets_are_read(tmp_path: Path, text: str) -> None:
    """Byte order marks, quotes, spaces, empty lines and other line ends make no difference."""
    path = tmp_path / "trace.csv"
    path.write_bytes(text.encode())
    assert Trace((0.0, 60.0), (0.1, 0.2), 120.0) == read_trace(path)


def test_a_trace_may_be_compressed(tmp_path: Path) -> None:
    """A trace that gzip has compressed is read like any other, also in several members."""
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress(f"{HEADER}\n0,6\n".encode()) + gzip.compress(b"60,12\n"))
    assert Trace((0.0, 60.0), (0.1, 0.2), 120.0) == read_trace(path)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (gzip.compress(HEADER.encode())[:-9], "expected an intact gzip file"),
        (gzip.compress(HEADER.encode())[:-8] + bytes(8), "CRC .*: expected an intact gzip file"),
        (b"PK\x03\x04\x14\0\x08\x08\xff", "UTF-8; export the spreadsheet as CSV"),
    ],
    ids=["shortened", "damaged", "spreadsheet"],
)
def test_a_trace_that_is_no_text_is_refused(tmp_path: Path, content: bytes, expected: str) -> None:
    """The error for a damaged file or a spreadsheet says what to do."""
    path = tmp_path / "trace.xlsx"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=expected):
        read_trace(path)


def test_a_long_trace_takes_little_memory(tmp_path: Path) -> None:
    """Reading takes some bytes for each number, not several objects for each row."""
    rows = 100_000
    path = write(tmp_path, "\n".join([HEADER, *(f"{at},60" for at in range(rows))]))
    tracemalloc.start()
    try:
        trace = read_trace(path)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows == len(trace.starts_s)
    assert most < 250 * rows


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0,1\n", f"trace.csv:1 = '0,1': expected the header {HEADER}"),
        (f"{HEADER}\n", "trace.csv:1 = 'no rows': expected at least one row"),
        (f"{HEADER}\n0,-1\n", "trace.csv:2: requests_per_minute = '-1': expected a rate of at l"),
        (f"{HEADER}\n-5,1\n", "trace.csv:2: start_s = '-5': expected a number of seconds"),
        (f"{HEADER}\n0,1\n60,1\n60,2\n", "trace.csv:4: start_s = '60': expected a start after 60"),
    ],
)
def test_trace_errors_name_line_value_and_expectation(
    tmp_path: Path, text: str, expected: str
) -> None:
    """Errors in a trace are reported with line, value and expectation."""
    with pytest.raises(ConfigError, match=expected):
        read_trace(write(tmp_path, text))


@pytest.mark.parametrize("rate_rps", [-1.0, math.nan, math.inf])
def test_invalid_rates_are_refused(rate_rps: float) -> None:
    """Negative and non-finite rates are refused."""
    with pytest.raises(ConfigError, match=r"rate = .*expected a rate of at least 0"):
        Poisson(rate_rps)


@pytest.mark.parametrize("name", ["periodic", "sporadic"])
def test_traces_of_real_loads(data: Data, name: str) -> None:
    """A trace has the number of rows, the length and the mean rate of its file."""
    trace = read_trace(data.trace(name), scale=60.0)
    rows, step_s = data.either((240, 60.0), (1007, 600.0))
    expected = step_s * sum(trace.rates_rps)
    assert (rows, rows * step_s) == (len(trace.starts_s), trace.end_s)
    assert pytest.approx(expected / trace.end_s) == trace.mean_rate
    assert pytest.approx(expected, rel=0.01) == len(timestamps(trace, trace.end_s, seed=1))
