"""Credentials: read from the gateway's files, generated, kept per address and found again."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from carpool import basic_auth
from carpool.basic_auth import Credentials
from carpool.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

PAIR = Credentials("admin", "pass:wörd")


def test_files_of_the_gateway_are_read(tmp_path: Path) -> None:
    """Missing or empty files are named in the error, and surrounding white space is stripped."""
    assert basic_auth.read_if_present(tmp_path) is None
    (tmp_path / "basic-auth-user").write_text("admin\n")
    with pytest.raises(ConfigError, match="basic-auth-password"):
        basic_auth.read_if_present(tmp_path)
    (tmp_path / "basic-auth-password").write_text("")
    with pytest.raises(ConfigError, match="basic-auth-password"):
        basic_auth.credentials(tmp_path)
    (tmp_path / "basic-auth-password").write_text(" pass:wörd \n")
    assert basic_auth.credentials(tmp_path) == PAIR


def test_written_files_are_private_to_the_owner(tmp_path: Path) -> None:
    """Folder and files are private whatever the umask, and existing files are replaced."""
    folder = tmp_path / "a" / "b"
    basic_auth.write(folder, basic_auth.new_credentials())
    basic_auth.write(folder, PAIR)
    assert basic_auth.credentials(folder) == PAIR
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {0o600}
    folder.chmod(0o750)  # the group is meant to read it
    basic_auth.write(folder, basic_auth.new_credentials())
    modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {0o640}
    folder.chmod(0o755)  # what mkdir makes is not shared on purpose
    basic_auth.write(folder, basic_auth.new_credentials())
    modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {0o600}
    assert ["basic-auth-password", "basic-auth-user"] == sorted(p.name for p in folder.iterdir())


def test_no_two_passwords_are_alike() -> None:
    """The user is OpenFaaS's default, and each password has 256 bits."""
    some = {basic_auth.new_credentials() for _ in range(20)}
    assert 20 == len({pair.password for pair in some})
    assert {"admin"} == {pair.user for pair in some}
    assert min(len(pair.password) for pair in some) >= 43


@pytest.mark.parametrize(
    ("address", "alike"),
    [
        ("127.0.0.1:8080", "http://127.0.0.1:8080/"),
        ("127.0.0.1:8080", "http://localhost:8080"),
        ("0.0.0.0:8080", "http://127.0.0.1:8080"),
        ("[::]:8080", "http://[::1]:8080"),
        ("10.0.0.7:8080", "http://10.0.0.7:8080"),
    ],
)
def test_credentials_are_found_by_address(tmp_path: Path, address: str, alike: str) -> None:
    """Credentials are found by every name that the address has on its own machine."""
    env = {"XDG_STATE_HOME": str(tmp_path)}
    basic_auth.write(basic_auth.folder_of(address, env), PAIR)
    assert basic_auth.credentials_for(alike, env) == PAIR


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8081",
        "http://10.0.0.7:8080",
        "https://127.0.0.1:8080",
        "http://elsewhere:8080",
        "http://127.0.0.1:8080/a/../b",
        "",
    ],
)
def test_credentials_are_not_used_for_other_addresses(tmp_path: Path, url: str) -> None:
    """A password is used only for the address that it was made for."""
    env = {"XDG_STATE_HOME": str(tmp_path)}
    basic_auth.write(basic_auth.folder_of("127.0.0.1:8080", env), PAIR)
    assert basic_auth.credentials_for(url, env) is None


def test_default_folder_is_below_the_users_home() -> None:
    """The folder is below the home directory unless another place for state is set."""
    found = basic_auth.folder_of("127.0.0.1:8080", {})
    assert found.is_absolute()
    assert ("carpool", "gateways", "127.0.0.1_8080") == found.parts[-3:]


@pytest.mark.parametrize("state", ["", "state", "./state", "../state"])
def test_relative_state_folder_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """A relative state folder is ignored, as it would depend on the working directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    expected = tmp_path / ".local/state/carpool/gateways/127.0.0.1_8080"
    assert expected == basic_auth.folder_of("127.0.0.1:8080", {"XDG_STATE_HOME": state})


def test_missing_home_error_names_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a home directory, the error names the option to use, and no credentials are found."""

    def homeless() -> Path:
        message = "Could not determine home directory."
        raise RuntimeError(message)

    monkeypatch.setattr("pathlib.Path.home", homeless)
    with pytest.raises(ConfigError, match="--basic-auth DIR"):
        basic_auth.folder_of("127.0.0.1:8080", {})
    assert basic_auth.credentials_for("127.0.0.1:8080", {}) is None
