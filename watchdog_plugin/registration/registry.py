"""The registry: a folder for each application, with a file that lists its registered variants.

    REGISTRY/APP/variants.json     as `carpool.variants.variant_file` reads it
    REGISTRY/APP/ARCHITECTURE-RECIPE-DIGEST.onnx

A variant is registered if it is in the list, which is replaced atomically. A model file named as
above but not in the list is left over from an interrupted registration and is removed by the next
one. Any other file in the folder is left alone.
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
    """Return a short digest of contents."""
    return hashlib.sha256(b"".join(parts)).hexdigest()[:_DIGEST]


def file_name(architecture: str, recipe: str, contents: str) -> str:
    """Return the name of the model file that a recipe makes of contents with that digest."""
    return f"{architecture}-{recipe}-{contents}.onnx"


class Registry:
    """The variants of one application.

    Args:
        folder: The registry of all applications.
        app: Name of the application.
        most_bytes: Maximum total size of its model files.
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
        """Lock the application against other registering processes, and remove leftovers.

        Raises:
            ConfigError: The folder cannot be written.
            Conflict: Another process is registering variants of the application.
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
        """Return the registered entries.

        Raises:
            ConfigError: The list is invalid.
        """
        if not self.listing.is_file():
            return []
        read_variants(self.listing)
        listing: Any = rules.loads(self.listing.read_text(encoding="utf-8"))
        variants: list[dict[str, Any]] = listing["variants"]
        return variants

    def file(self, name: str) -> Path:
        """Return the path of the model file with that name, whether it exists or not."""
        return self._folder / name

    def check_disk(self, added: Path) -> None:
        """Check that the model files do not exceed their maximum size.

        Raises:
            ConfigError: They do.
        """
        used = sum(path.stat().st_size for path in self._made())
        if used > self._most_bytes:
            given = f"{used} bytes with {added.name}"
            expected = f"at most {self._most_bytes:.0f} bytes of model files"
            fix = "raise --disk, or register fewer recipes"
            raise ConfigError([Problem("--disk", given, expected, fix)])

    def add(self, entry: dict[str, Any]) -> None:
        """Register a variant, replacing any variant of the same name.

        Raises:
            FunctionFault: The list cannot be written; it remains unchanged.
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
            msg = f"{self.listing} cannot be written, and is unchanged: {error.strerror}"
            raise FunctionFault(msg) from error

    def _made(self) -> list[Path]:
        """Return the model files made by registrations, complete or partial."""
        return [path for path in self._folder.iterdir() if _MADE.fullmatch(path.name)]

    def _sweep(self) -> None:
        """Remove model files that belong to no registered variant."""
        named = {entry.get("file") for entry in self.entries()}
        for path in [*self._made(), self.listing.with_suffix(".new")]:
            if path.name not in named:
                path.unlink(missing_ok=True)
