"""The assembled functions of a stack, by image; rebuilt in folders beside those in use.

The first folder of a function is ``build/NAME``, where faas-cli puts it too; those of later reloads
are ``build/NAME.2`` and so on. An instance keeps the folder that it was started in, and unused
folders are removed before the next one is created.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
from collections import defaultdict
from typing import TYPE_CHECKING

from faas_stack.stack.assemble import assemble
from faas_stack.stack.variant_copy import variant_copy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable
    from pathlib import Path

    from faas_stack.provider.local.build_context import BuildContext
    from faas_stack.stack.stack_file import StackFile, StackFunction
    from faas_stack.stack.variant_copy import VariantCopy

__all__ = ["Images"]


class Images:
    """The images of a stack.

    Args:
        stack: The stack, with its functions.
        contexts: Build contexts by image, to be filled.
        in_use: Returns the folders that instances were started in.

    Attributes:
        stack: The stack in its present form.
        variant_copies: Copies of the functions' variants, in each of their folders.
    """

    def __init__(
        self,
        stack: StackFile,
        contexts: dict[str, BuildContext],
        in_use: Callable[[], Collection[Path]],
    ) -> None:
        self.stack = stack
        self.variant_copies: list[VariantCopy] = []
        self._contexts = contexts
        self._in_use = in_use
        self._numbers = itertools.count(2)
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def assemble(self) -> None:
        """Assemble every image, replacing all that an earlier run has left.

        Raises:
            ConfigError: A function is not built from a handler, or its files cannot be copied.
        """
        for function in self.stack.functions:
            _remove(self._unused(function))
            self._take(function, assemble(self.stack, function))

    @contextlib.asynccontextmanager
    async def rebuilt(self, image: str) -> AsyncIterator[None]:
        """Rebuild an image for instances started within; restore the previous one on an exception.

        One at a time: another one of the same image waits until this one is left.

        Raises:
            ConfigError: The image's files cannot be copied.
        """
        functions = (each for each in self.stack.functions if each.image == image)
        if (function := next(functions, None)) is None:  # the stack file no longer has the function
            yield
            return
        async with self._locks[image], self._rebuilt(image, function):
            yield

    @contextlib.asynccontextmanager
    async def _rebuilt(self, image: str, function: StackFunction) -> AsyncIterator[None]:
        before = self._contexts.get(image)
        await asyncio.to_thread(_remove, self._unused(function))  # models are large
        folder = self.stack.folder / "build" / f"{function.name}.{next(self._numbers)}"
        self._take(function, await asyncio.to_thread(assemble, self.stack, function, folder))
        try:
            yield
        except BaseException:
            if before is None:
                del self._contexts[image]
            else:
                self._contexts[image] = before
            raise

    def _take(self, function: StackFunction, context: BuildContext) -> None:
        self._contexts[context.image] = context
        variants = variant_copy(function, context.folder)
        there = [copy for copy in self.variant_copies if copy.target.exists()]
        self.variant_copies[:] = [*there, variants] if variants else there

    def _unused(self, function: StackFunction) -> list[Path]:
        """Return the folders of a function in which no instance will be started again."""
        used = {*self._in_use(), *(context.folder for context in self._contexts.values())}
        there = (self.stack.folder / "build").glob(f"{function.name}.*")
        return [each for each in there if each.suffix[1:].isdecimal() and each not in used]


def _remove(folders: Iterable[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
