"""The scaler's file: what was kept is there again, and nothing is ever overwritten by mistake."""

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
    """Where the store is, in a folder that is not there yet."""
    return tmp_path / "state" / "scaler.db"


def test_what_was_kept_is_there_again(path: Path) -> None:
    """Documents and arrivals survive; names are kept apart by kind."""
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


def test_terms_grow_from_start_to_start(path: Path) -> None:
    """By the clock; above what was kept where that was set back, and from a store without any."""
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


def test_a_round_is_kept_as_a_whole_or_not_at_all(path: Path) -> None:
    """An error in the middle of a round takes back what it had written."""
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
    """What a round has kept is read by the next scaler although the file was not closed."""
    killed = Store(path)
    with killed.round():
        killed.put("function", {"f": FORM})
    other = Store(path)
    assert {"f": FORM} == other.get("function")
    other.close()
    killed.close()


def test_a_claimed_store_is_locked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be looked at, but claimed only after its owner has closed it."""
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
    """A file of the first version gets what came later, and keeps what it has."""
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
    """The store of a later Carpool is an error, and stays as it is."""
    Store(path).close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 99")
        database.commit()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="of a later Carpool"):
        Store(path)
    assert before == path.read_bytes()


def test_another_programs_database_is_not_touched(path: Path) -> None:
    """A database that is not ours is an error, and stays as it is."""
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
    """A file that is damaged is an error that names it and the fix, and stays as it is."""
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
    """What one store exports, another has after the import, in place of what it had."""
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
def test_an_import_that_is_none_changes_nothing(path: Path, document: object) -> None:
    """Another version, unknown kinds and ill-formed documents are refused."""
    store = Store(path)
    with store.round():
        store.put("function", {"f": FORM})
    with pytest.raises(ConfigError):
        store.restore(document)
    assert {"f": FORM} == store.get("function")
    store.close()


def test_files_are_the_owners_alone(tmp_path: Path) -> None:
    """The store, what SQLite makes beside it, and the claim; also those that were there before."""
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
