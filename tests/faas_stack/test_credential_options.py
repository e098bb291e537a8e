"""Where a provider's credentials are kept, and whose they are."""

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
    """As by these options."""
    parser = argparse.ArgumentParser()
    credential_options.add_flags(parser)
    return Access.of(parser.parse_args(options), listen)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_a_port_of_the_moment_leaves_nothing() -> None:
    """What was made for it goes with it."""
    with asked().stored(CHOSEN):
        assert basic_auth.credentials_for(CHOSEN)
    assert basic_auth.credentials_for(CHOSEN) is None


def test_a_port_of_the_moment_may_be_that_of_another_stack() -> None:
    """One that does not run now: it finds its credentials as it left them, and so do its users."""
    theirs = Credentials("admin", "theirs")
    basic_auth.write(basic_auth.folder_of(CHOSEN), theirs)
    mine = asked()
    assert mine.auth
    with mine.stored(CHOSEN):
        assert theirs == mine.credentials == basic_auth.credentials_for(CHOSEN)
        assert b"admin:theirs" == mine.auth._expected
    assert theirs == basic_auth.credentials_for(CHOSEN)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """Whatever is put there, the user is told which folder, and what to do."""
    file = tmp_path / "file"
    file.touch()
    named = asked()
    named.named = file / "folder"  # as if the disk were full by now
    told = r"--basic-auth = .*/file/folder.*can be written"
    with pytest.raises(ConfigError, match=told), named.stored(CHOSEN):
        pass
    with pytest.raises(ConfigError, match=told):
        named.share("token", b"x")


def test_what_is_shared_is_shared_where_the_user_said(tmp_path: Path) -> None:
    """Beside the credentials in a folder that was named; not in one of ours."""
    asked().share("token", b"x")
    asked("--basic-auth", str(tmp_path / "mine")).share("token", b"x")
    assert [tmp_path / "mine" / "token"] == [p for p in tmp_path.rglob("*") if p.is_file()]
