"""The file of a profile database: created atomically, or refused with the reason."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from carpool.errors import ConfigError
from carpool.predictor.profile_database import read_profiles
from carpool.predictor.profile_file import begin_database, default_database, opened

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BEGIN = """
import sys
from pathlib import Path
from carpool.predictor.profile_file import begin_database
begin_database(Path(sys.argv[1]))
"""
BEGIN_AGAIN_AND_AGAIN = """
import sys
from pathlib import Path
from carpool.predictor.profile_file import begin_database
path = Path(sys.argv[1])
while True:
    path.unlink(missing_ok=True)
    begin_database(path)
    print(end=".", flush=True)
"""


def _models(path: Path) -> int:
    with opened(path) as connection:
        (count,) = connection.execute("SELECT count(*) FROM models").fetchone()
    return int(count)


@pytest.mark.parametrize("before", [None, b""], ids=["missing", "empty"])
def test_database_starts_as_copy_of_the_packaged_one(tmp_path: Path, before: bytes | None) -> None:
    """The folder is created, and contains only the copy."""
    path = tmp_path / "new" / "p.sqlite"
    if before is not None:
        path.parent.mkdir()
        path.write_bytes(before)
    begin_database(path)
    assert _models(default_database()) == _models(path)
    assert [path] == list(path.parent.iterdir())


def test_existing_database_is_kept(tmp_path: Path) -> None:
    """An existing database is kept, even if it is empty."""
    path = tmp_path / "p.sqlite"
    begin_database(path)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM models")
    begin_database(path)
    assert [] == read_profiles(path)


def test_concurrent_creation_succeeds(tmp_path: Path) -> None:
    """Several processes may create the database at once without errors."""
    path = tmp_path / "p.sqlite"
    command = [sys.executable, "-c", BEGIN, str(path)]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(4)]
    assert [(0, b"")] * 4 == [(each.wait(), each.communicate()[1]) for each in running]
    assert _models(default_database()) == _models(path)


@pytest.mark.parametrize("copies", [1, 3, 6])
def test_killed_creation_leaves_file_complete_or_absent(tmp_path: Path, copies: int) -> None:
    """After SIGKILL at any time, the file is complete or absent, and can be created again."""
    path = tmp_path / "p.sqlite"
    command = [sys.executable, "-c", BEGIN_AGAIN_AND_AGAIN, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.read(copies)
        running.kill()
    with contextlib.suppress(FileNotFoundError):
        assert path.stat().st_size == default_database().stat().st_size
    begin_database(path)
    assert _models(default_database()) == _models(path)


def _cut(path: Path) -> None:
    path.write_bytes(default_database().read_bytes()[:300_000])


def _text(path: Path) -> None:
    path.write_text("no database")


def _later(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE models (id)")
        connection.execute("PRAGMA user_version = 99")


def _folder(path: Path) -> None:
    path.mkdir()


def _below_a_file(path: Path) -> None:
    path.parent.write_text("no folder")


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (_cut, "malformed.*delete it, or name another"),
        (_text, "not a database.*delete it, or name another"),
        (_later, "version 99.*of version 2; it was written by a later version of carpool"),
        (_folder, "unable to open.*name one that can be written to"),
        (_below_a_file, "name one that can be written to"),
    ],
)
def test_unusable_file_is_refused_with_the_fix(
    tmp_path: Path, spoil: Callable[[Path], None], expected: str
) -> None:
    """The error has the file, what is wrong with it, and the fix."""
    path = tmp_path / "folder" / "p.sqlite"
    if spoil is not _below_a_file:
        path.parent.mkdir()
    spoil(path)
    with pytest.raises(ConfigError, match=rf"p\.sqlite = .*{expected}"):
        begin_database(path)
