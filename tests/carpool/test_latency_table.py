"""The table latency model."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.errors import ConfigError
from carpool.latency import Configuration, LatencyModel, Resources
from carpool.latency.table import Table, read_table

if TYPE_CHECKING:
    from pathlib import Path

    from tests.measured import Data

HEADER = "cpu_threads,gpu_percent,batch,latency_ms"
ROWS = """\
2,0,1,100
2,0,4,220
4,0,4,160
4,0,8,300
2,10,1,40
2,10,4,100
4,10,4,60
4,10,8,120
2,30,1,20
2,30,4,80
4,30,4,40
"""


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A small table with gaps, as measured ones have."""
    path = tmp_path / "small.csv"
    path.write_text(f"{HEADER}\n{ROWS}")
    return read_table(path, load_s=2.0, memory_mb=512)


def test_measured_size_has_measured_latency(table: Table) -> None:
    """A measured size has its measured latency at every quantile."""
    model: LatencyModel = table
    assert 0.22 == model.predict(4, 2, 0)
    assert 0.22 == model.predict(4, 2, 0, 0.99)
    assert 2.0 == model.load_s
    assert Resources(4, 30, 512) == model.resources(4, 4, 30)


@pytest.mark.parametrize(
    ("batch", "cpu", "gpu", "expected_s"),
    [
        pytest.param(2, 2, 0, 0.14, id="between batches"),
        pytest.param(7, 4, 0, 0.265, id="between batches of another size"),
        pytest.param(4, 3, 0, 0.19, id="between cores"),
        pytest.param(4, 2.5, 0, 0.205, id="between cores, not halfway"),
        pytest.param(4, 2, 25, 0.085, id="between GPU shares"),
        pytest.param(4, 3, 20, 0.07, id="between cores and GPU shares"),
        pytest.param(3, 2, 20, 0.07, id="between batches and GPU shares"),
    ],
)
def test_latency_between_rows_is_interpolated(
    table: Table, batch: int, cpu: float, gpu: float, expected_s: float
) -> None:
    """The latency is interpolated linearly between rows, along each axis."""
    assert pytest.approx(expected_s) == table.predict(batch, cpu, gpu)


@pytest.mark.parametrize(
    ("batch", "cpu", "gpu"),
    [
        pytest.param(8, 2, 0, id="a larger batch than that size has"),
        pytest.param(2, 4, 0, id="a smaller batch than that size has"),
        pytest.param(16, 4, 0, id="a larger batch than any"),
        pytest.param(0, 2, 0, id="no batch"),
        pytest.param(2, 3, 0, id="a batch that only one of the neighbours has"),
        pytest.param(4, 1, 0, id="fewer cores than any"),
        pytest.param(4, 8, 0, id="more cores than any"),
        pytest.param(4, 2, 40, id="a larger GPU share than any"),
        pytest.param(4, 2, 5, id="a smaller GPU share than any is not between it and none"),
        pytest.param(4, 2, -1, id="a negative GPU share"),
        pytest.param(8, 4, 20, id="a row missing at one of the neighbours"),
        pytest.param(8, 4, 30, id="a row missing"),
        pytest.param(4, float("nan"), 0, id="not a number"),
    ],
)
def test_sizes_beyond_rows_are_infeasible(table: Table, batch: int, cpu: float, gpu: float) -> None:
    """Sizes beyond the rows are infeasible, and a missing row means that the batch does not fit."""
    assert table.predict(batch, cpu, gpu) is None


def test_measured_sizes_are_offered(table: Table) -> None:
    """The measured sizes are offered, up to the largest permitted batch."""
    assert 11 == len(list(table.configurations(32)))
    assert [Configuration(1, 2, gpu) for gpu in (0, 10, 30)] == list(table.configurations(3))


SIZES = st.builds(
    Configuration,
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1.0, 2.0, 4.0]),
    st.sampled_from([0.0, 10.0, 50.0]),
)


@given(
    st.dictionaries(SIZES, st.floats(0.001, 10), min_size=1),
    *(st.integers(0, 10), st.floats(0, 5), st.floats(0, 60)),
)
def test_interpolation_stays_between_its_neighbours(
    rows: dict[Configuration, float], batch: int, cpu: float, gpu: float
) -> None:
    """An interpolated latency lies between those of the table's rows."""
    predicted = Table(rows).predict(batch, cpu, gpu)
    if predicted is None:
        return
    axes = [(row.batch, row.cpu, row.gpu) for row in rows]
    for axis, at in zip(zip(*axes, strict=True), (batch, cpu, gpu), strict=True):
        assert min(axis) <= at <= max(axis)
    slack = 1e-9
    assert min(rows.values()) - slack <= predicted <= max(rows.values()) + slack
    assert (gpu == 0) in {row.gpu == 0 for row in rows}


@given(st.dictionaries(SIZES, st.floats(0.001, 10), min_size=1))
def test_every_row_is_offered_and_predicted_exactly(rows: dict[Configuration, float]) -> None:
    """Every row of a table is offered and predicted exactly."""
    table = Table(rows)
    assert rows == {row: table.predict(row.batch, row.cpu, row.gpu) for row in rows}
    assert set(rows) == set(table.configurations(8))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", rf"small.csv:1 = '': expected the header {HEADER}", id="empty"),
        pytest.param(f"{HEADER}\n", r"small.csv:1 = 'no rows': expected at least one", id="header"),
        pytest.param(ROWS, r"small.csv:1 = '2,0,1,100': expected the header", id="no-header"),
        pytest.param(
            f"{HEADER}\n2,0,1,x\n",
            r"small.csv:2: latency_ms = 'x': expected a number of milliseconds above 0",
            id="word",
        ),
        pytest.param(f"{HEADER}\n2,0,1,nan\n", "latency_ms = 'nan'", id="nan"),
        pytest.param(f"{HEADER}\n2,0,1,0\n", "latency_ms = '0'", id="zero"),
        pytest.param(f"{HEADER}\n2,0,1,1_0\n", "latency_ms = '1_0'", id="underscore"),
        pytest.param(
            f"{HEADER}\n\n2,0,1,5\n2,101,1,5\n",
            r"small.csv:4: gpu_percent = '101': expected a percentage from 0 to 100",
            id="percent",
        ),
        pytest.param(
            f"{HEADER}\n2,0,1.5,5\n",
            r"small.csv:2: batch = '1.5': expected a whole number of at least 1",
            id="half-batch",
        ),
        pytest.param(
            f"{HEADER}\n0,0,1,5\n", "cpu_threads = '0': expected a number of threads", id="no-cpu"
        ),
        pytest.param(
            f"{HEADER}\n2,0,1\n", r"small.csv:2 = '2,0,1': expected 4 cells: cpu", id="short-row"
        ),
        pytest.param(
            f"{HEADER}\n2,0,1,5\n2,0,2,6\n2.0,0,1,7\n",
            r"small.csv:4 = '2,0,1': expected a unique row; line 2 has the same",
            id="twin",
        ),
        pytest.param(
            f'{HEADER}\n2,0,1,"5\n', r"small.csv:2 = 'unexpected end of data'", id="open-quote"
        ),
    ],
)
def test_file_error_has_line_value_and_expectation(
    tmp_path: Path, text: str, expected: str
) -> None:
    """An error in a file is reported with its line, value and expectation."""
    path = tmp_path / "small.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=expected):
        read_table(path)


def test_reports_every_line_at_once(tmp_path: Path) -> None:
    """The errors of all lines are reported together."""
    path = tmp_path / "small.csv"
    path.write_text(f"{HEADER}\n0,0,1,5\n2,0,0,5\n2,0,1,5\n")
    with pytest.raises(ConfigError) as caught:
        read_table(path)
    assert [f"{path}:2: cpu_threads", f"{path}:3: batch"] == [
        problem.name for problem in caught.value.problems
    ]


def test_a_missing_file_is_a_clear_error(tmp_path: Path) -> None:
    """The error for a missing file names its path."""
    with pytest.raises(ConfigError, match=r"none.csv': expected an existing file"):
        read_table(tmp_path / "none.csv")


def test_byte_order_mark_and_blanks_are_ignored(tmp_path: Path) -> None:
    """A byte order mark, Windows line ends, blanks and empty lines are ignored."""
    path = tmp_path / "small.csv"
    path.write_bytes(f"\ufeff{HEADER}\r\n 2, 0, 1, 12.5\r\n\r\n".encode())
    assert {Configuration(1, 2, 0): 0.0125} == read_table(path).rows


@pytest.mark.parametrize("name", ["mobilenet", "resnet-50", "ssd", "textcnn-69"])
def test_tables_of_real_models_are_read(data: Data, name: str) -> None:
    """Every published profile is read, and each of its rows is predicted exactly."""
    table = read_table(data.table(name))
    assert all(
        table.rows[row] == table.predict(row.batch, row.cpu, row.gpu)
        for row in table.configurations(32)
    )
    sizes = {(row.cpu, row.gpu) for row in table.rows}
    for (cpu, gpu), batch in itertools.product(sizes, range(1, 64)):
        batches = [row.batch for row in table.rows if (row.cpu, row.gpu) == (cpu, gpu)]
        known = min(batches) <= batch <= max(batches)
        assert known == (table.predict(batch, cpu, gpu) is not None)


def test_resnet(data: Data) -> None:
    """Latencies of ResNet-50 on the hardware of INFless (ASPLOS'22), or its stand-in, are right."""
    table = read_table(data.table("resnet-50"))
    assert data.either(0.092, 0.09875) == table.predict(4, 4, 10)
    assert pytest.approx(data.either(0.088, 0.09225)) == table.predict(3, 2, 10)
    assert table.predict(8, 2, 10) is None
    if data.measured:
        assert table.predict(16, 12, 10) is None, "12 threads were measured without a GPU only"
