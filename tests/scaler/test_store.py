"""The scaler's store: saved data can be read again, and nothing is overwritten by mistake."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from carpool.errors import ConfigError
from scaler.persistence import next_term
from scaler.store import Store

if TYPE_CHECKING:
    from pathlib import Path

FORM = {"plan": {"version": 3}, "words": ["a", "é"]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Path of the store, in a folder that does not exist yet."""
    return tmp_path / "state" / "scaler.db"


def test_stored_data_is_read_after_reopening(path: Path) -> None:
    """Documents, separated by kind, and arrivals are there after reopening."""
    store = Store(path)
    with store.round():
        store.put("function", {"f": FORM, "g": {}})
        store.put("prewarm", {"f": {"x": 1}})
        store.count("f", "web", 10, 3)
        store.count("f", "web", 10, 4)
        store.count("f", "*", 11, 1)
        store.drop("function", "g")
    store.close()
    again = Store(path)
    assert {"f": FORM} == again.get("function")
    assert {"f": {"x": 1}} == again.get("prewarm")
    assert [("web", 10, 7), ("*", 11, 1)] == again.counts("f")
    assert [("*", 11, 1)] == again.counts("f", since=11)
    with again.round():
        again.forget(before=11)
    assert [("*", 11, 1)] == again.counts("f")
    again.close()


def test_terms_increase_with_every_start(path: Path) -> None:
    """Terms follow the clock and exceed the stored ones even if the clock was set back."""
    store = Store(path)
    assert 5_000 == next_term(store, 5.0)
    with store.round():
        store.put("function", {"f": FORM, "g": {"term": 5_000}, "h": {"term": 4_000}})
    assert 5_001 == next_term(store, 1.0)
    assert 6_000 == next_term(store, 6.0)
    with store.round():
        store.put("function", {"f": {"term": None}, "g": {"term": "x"}, "h": {"term": 2**53 - 1}})
    assert 6_000 == next_term(store, 6.0), "what is no term is not counted"
    store.close()


def test_failed_round_is_rolled_back(path: Path) -> None:
    """An error in the middle of a round reverts what it has written."""
    store = Store(path)

    def fail() -> None:
        with store.round():
            store.put("function", {"f": FORM})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert {} == store.get("function")
    store.close()


def test_a_killed_scaler_loses_no_finished_round(path: Path) -> None:
    """The next scaler reads all finished rounds although the file was not closed."""
    killed = Store(path)
    with killed.round():
        killed.put("function", {"f": FORM})
    other = Store(path)
    assert {"f": FORM} == other.get("function")
    other.close()
    killed.close()


def test_a_claimed_store_is_locked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may read it, but claim it only after its owner has closed it."""
    monkeypatch.setattr("scaler.store._LETTING_GO_S", 0.01)
    running, other = Store(path), Store(path)
    running.claim()
    assert {} == other.get("function")
    with pytest.raises(ConfigError, match="stop it first"):
        other.claim()
    running.close()
    other.claim()
    other.close()


def test_an_older_store_is_brought_up_to_date(path: Path) -> None:
    """A file of the first version gets the later tables and keeps its data."""
    store = Store(path)
    with store.round():
        store.put("function", {"f": FORM})
    store.close()
    with closing(sqlite3.connect(path)) as database:
        database.executescript("DROP TABLE arrival; PRAGMA user_version = 1;")
    again = Store(path)
    assert {"f": FORM} == again.get("function")
    assert [] == again.counts("f")
    again.close()


def test_a_later_version_is_not_touched(path: Path) -> None:
    """A store of a later Carpool is an error, and the file does not change."""
    Store(path).close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 99")
        database.commit()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="of a later Carpool"):
        Store(path)
    assert before == path.read_bytes()


def test_another_programs_database_is_not_touched(path: Path) -> None:
    """A database of another program is an error, and the file does not change."""
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE theirs (x)")
        database.commit()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="belongs to another program"):
        Store(path)
    assert before == path.read_bytes()


@pytest.mark.parametrize("damage", ["head", "middle", "text"])
def test_a_damaged_store_is_not_touched(path: Path, damage: str) -> None:
    """The error names the file and the fix, and the file does not change."""
    store = Store(path)
    with store.round():
        store.put("function", {f"f{number}": {"x": "y" * 200} for number in range(400)})
    store.close()
    data = bytearray(path.read_bytes())
    if damage == "text":
        data = bytearray(b"this is not a database, and never was" * 100)
    else:
        begin = 0 if damage == "head" else len(data) // 2
        data[begin : begin + 4096] = b"\x55" * 4096
    path.write_bytes(data)
    with pytest.raises(ConfigError) as raised:
        Store(path)
    assert str(path) in str(raised.value)
    assert "carpool scaler export" in str(raised.value)
    assert bytes(data) == path.read_bytes()


def test_an_export_restores_everything(path: Path, tmp_path: Path) -> None:
    """An import replaces the contents of a store with those of the exported one."""
    store, other = Store(path), Store(tmp_path / "other.db")
    with store.round():
        store.put("function", {"f": FORM})
        store.count("f", "web", 10, 3)
    with other.round():
        other.put("function", {"old": {}})
    other.restore(store.export())
    assert store.export() == other.export()
    assert {"f": FORM} == other.get("function")
    store.close()
    other.close()


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"version": 1, "documents": {}, "arrivals": []},
        {"version": 2, "documents": {"secret": {}}, "arrivals": []},
        {"version": 2, "documents": {"function": {"f": 1}}, "arrivals": []},
    ],
)
def test_invalid_import_changes_nothing(path: Path, document: object) -> None:
    """Other versions, unknown kinds and malformed documents are refused."""
    store = Store(path)
    with store.round():
        store.put("function", {"f": FORM})
    with pytest.raises(ConfigError):
        store.restore(document)
    assert {"f": FORM} == store.get("function")
    store.close()


def test_files_are_private_to_owner(tmp_path: Path) -> None:
    """The store, SQLite's files and the lock are private, even if the store was not before."""
    path = tmp_path / "scaler.db"
    Store(path).close()
    path.chmod(0o644)
    store = Store(path)
    store.claim()
    with store.round():
        store.put("function", {"f": {"plan": None, "version": 3}})
    modes = {each.name: oct(each.stat().st_mode & 0o777) for each in tmp_path.iterdir()}
    store.close()
    assert {"scaler.db", "scaler.db-wal", "scaler.db-shm", "scaler.db.lock"} <= modes.keys()
    assert {"0o600"} == set(modes.values()), modes
