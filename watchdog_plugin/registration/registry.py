"""The registry: a folder for each application, with one file that lists what is registered in it.

    REGISTRY/APP/variants.json     as `carpool.variants.variant_file` reads it
    REGISTRY/APP/ARCHITECTURE-RECIPE-DIGEST.onnx

A variant is registered when it is in the list, which is replaced in one step. A model file that the
list does not name is what an interrupted registration has left; it goes at the next one.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from carpool import forms
from carpool.errors import ConfigError, Conflict, Problem
from carpool.variants.variant_file import read_variants, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["LIST", "Registry"]

LIST = "variants.json"


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
        """Nobody else registers for this application meanwhile; what was left over is gone.

        Raises:
            Conflict: somebody else does.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / ".lock").open("w", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                msg = f"{self._folder}: somebody else is registering variants of {self._app!r}"
                raise Conflict(msg) from error
            try:
                self._sweep()
                yield
            finally:
                self._sweep()

    def entries(self) -> list[dict[str, Any]]:
        """What is registered.

        Raises:
            ConfigError: the list is not one.
        """
        if not self.listing.is_file():
            return []
        read_variants(self.listing)
        form: Any = forms.loads(self.listing.read_text(encoding="utf-8"))
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
        used = sum(path.stat().st_size for path in self._folder.glob("*.onnx"))
        if used > self._most_bytes:
            given = f"{used} bytes with {added.name}"
            expected = f"at most {self._most_bytes:.0f} bytes of model files"
            mend = "raise --disk, or register fewer recipes"
            raise ConfigError([Problem("--disk", given, expected, mend)])

    def add(self, entry: dict[str, Any]) -> None:
        """Register a variant, in the place of one of that name."""
        others = [each for each in self.entries() if each["name"] != entry["name"]]
        text = text_of(self._app, [*others, entry])
        fresh = self.listing.with_suffix(".new")
        with fresh.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.listing)

    def _sweep(self) -> None:
        """Remove files that no variant has, and the folder if nothing is registered."""
        named = {entry.get("file") for entry in self.entries()}
        for path in [*self._folder.glob("*.onnx"), *self._folder.glob("*.new")]:
            if path.name not in named:
                path.unlink(missing_ok=True)
