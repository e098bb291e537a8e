"""The registry: a folder for each application, with one file that lists what is registered in it.

    REGISTRY/APP/variants.json     as `carpool.variants.variant_file` reads it
    REGISTRY/APP/ARCHITECTURE-RECIPE-DIGEST.onnx

A variant is registered when it is in the list, which is replaced in one step. A model file of such
a name that the list does not have is what an interrupted registration has left; it goes at the next
one. Any other file in the folder belongs to others and stays.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from carpool.errors import ConfigError, Conflict, FunctionFault, Problem
from carpool.validation import rules
from carpool.variants.variant_file import read_variants, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["LIST", "Registry", "digest", "file_name"]

LIST = "variants.json"
_DIGEST = 12  # characters of a file's digest that tell it from others
_MADE = re.compile(rf"[a-z0-9-]+-[0-9a-f]{{{_DIGEST}}}\.(onnx|new)")


def digest(*parts: bytes) -> str:
    """A digest of contents, in a few characters."""
    return hashlib.sha256(b"".join(parts)).hexdigest()[:_DIGEST]


def file_name(architecture: str, recipe: str, contents: str) -> str:
    """Of the model file that a recipe makes of contents with that digest."""
    return f"{architecture}-{recipe}-{contents}.onnx"


class Registry:
    """The variants of one application.

    Args:
        folder: Of all applications.
        app: Which one.
        most_bytes: What its model files may take.
    """

    def __init__(self, folder: Path, app: str, most_bytes: float) -> None:
        self._folder = folder / app
        self._app = app
        self._most_bytes = most_bytes

    @property
    def listing(self) -> Path:
        """The file that lists the variants."""
        return self._folder / LIST

    @contextmanager
    def opened(self) -> Iterator[None]:
        """No other process registers for this application meanwhile; what was left over is gone.

        Raises:
            ConfigError: the folder cannot be written.
            Conflict: another process does.
        """
        with self._lock() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                msg = f"{self._folder}: another process is registering variants of {self._app!r}"
                raise Conflict(msg) from error
            try:
                self._sweep()
                yield
            finally:
                self._sweep()

    def _lock(self) -> IO[str]:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            return (self._folder / ".lock").open("w", encoding="utf-8")
        except OSError as error:
            expected = f"a folder in which {self._app!r} can be made and written"
            problem = Problem(
                "--registry", str(self._folder.parent), expected, error.strerror or ""
            )
            raise ConfigError([problem]) from error

    def entries(self) -> list[dict[str, Any]]:
        """What is registered.

        Raises:
            ConfigError: the list is not one.
        """
        if not self.listing.is_file():
            return []
        read_variants(self.listing)
        form: Any = rules.loads(self.listing.read_text(encoding="utf-8"))
        found: list[dict[str, Any]] = form["variants"]
        return found

    def file(self, name: str) -> Path:
        """Where a model file of that name is, or is to be made."""
        return self._folder / name

    def check_room(self, added: Path) -> None:
        """Whether a new file may stay.

        Raises:
            ConfigError: there would be more than there may be.
        """
        used = sum(path.stat().st_size for path in self._made())
        if used > self._most_bytes:
            given = f"{used} bytes with {added.name}"
            expected = f"at most {self._most_bytes:.0f} bytes of model files"
            fix = "raise --disk, or register fewer recipes"
            raise ConfigError([Problem("--disk", given, expected, fix)])

    def add(self, entry: dict[str, Any]) -> None:
        """Register a variant, in the place of one of that name.

        Raises:
            FunctionFault: the list cannot be written; it is as it was.
        """
        others = [each for each in self.entries() if each["name"] != entry["name"]]
        text = text_of(self._app, [*others, entry])
        fresh = self.listing.with_suffix(".new")
        try:
            with fresh.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self.listing)
        except OSError as error:
            msg = f"{self.listing} cannot be written, and stays as it was: {error.strerror}"
            raise FunctionFault(msg) from error

    def _made(self) -> list[Path]:
        """The model files that registrations have made, whole or in part."""
        return [path for path in self._folder.iterdir() if _MADE.fullmatch(path.name)]

    def _sweep(self) -> None:
        """Remove what was made and no variant has."""
        named = {entry.get("file") for entry in self.entries()}
        for path in [*self._made(), self.listing.with_suffix(".new")]:
            if path.name not in named:
                path.unlink(missing_ok=True)
