"""Tests of where a provider's credentials are stored, and of whose they are."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import pytest

from carpool import basic_auth
from carpool.basic_auth import Credentials
from carpool.errors import ConfigError
from faas_stack.provider import credential_options
from faas_stack.provider.credential_options import Access

if TYPE_CHECKING:
    from pathlib import Path

CHOSEN = "127.0.0.1:43210"  # by the system


def asked(*options: str, listen: str = "127.0.0.1:0") -> Access:
    """Return the access for these options."""
    parser = argparse.ArgumentParser()
    credential_options.add_flags(parser)
    return Access.of(parser.parse_args(options), listen)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_credentials_of_system_chosen_port_are_removed() -> None:
    """Credentials made for a port that the system chose are removed at the end."""
    with asked().stored(CHOSEN):
        assert basic_auth.credentials_for(CHOSEN)
    assert basic_auth.credentials_for(CHOSEN) is None


def test_chosen_port_of_stopped_stack_keeps_its_credentials() -> None:
    """A chosen port that belongs to a stopped stack uses and keeps that stack's credentials."""
    theirs = Credentials("admin", "theirs")
    basic_auth.write(basic_auth.folder_of(CHOSEN), theirs)
    mine = asked()
    assert mine.auth
    with mine.stored(CHOSEN):
        assert theirs == mine.credentials == basic_auth.credentials_for(CHOSEN)
        assert b"admin:theirs" == mine.auth._expected
    assert theirs == basic_auth.credentials_for(CHOSEN)


def test_unwritable_folder_is_named(tmp_path: Path) -> None:
    """The error for a folder that cannot be written names it, whatever is stored there."""
    file = tmp_path / "file"
    file.touch()
    named = asked()
    named.named = file / "folder"  # as if the disk were full by now
    told = r"--basic-auth = .*/file/folder.*can be written"
    with pytest.raises(ConfigError, match=told), named.stored(CHOSEN):
        pass
    with pytest.raises(ConfigError, match=told):
        named.share("token", b"x")


def test_shared_files_are_written_only_to_named_folder(tmp_path: Path) -> None:
    """Shared files are written beside the credentials only in a folder that the user named."""
    asked().share("token", b"x")
    asked("--basic-auth", str(tmp_path / "mine")).share("token", b"x")
    assert [tmp_path / "mine" / "token"] == [p for p in tmp_path.rglob("*") if p.is_file()]
