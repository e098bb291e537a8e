"""Tests of this function; in its folder: ``python -m unittest handler_test``."""

import math
import unittest

from handler import handle_batch

from watchdog_plugin import Item


def item(body: bytes) -> Item:
    """Return an item with this body."""
    return Item(body, b"POST /\n", math.inf)


class HandlerTest(unittest.TestCase):
    """What callers can rely on."""

    def test_every_item_is_answered_in_order(self) -> None:
        """A result belongs to the item in its place."""
        self.assertEqual(
            ["Hello, Ada!", "Hello, world!"], list(handle_batch([item(b"Ada"), item(b"")]))
        )

    def test_a_batch_gets_the_answers_its_items_get_alone(self) -> None:
        """An answer does not depend on what else is in the batch."""
        bodies = [b"one", b"two", b"three"]
        alone = [handle_batch([item(body)])[0] for body in bodies]
        self.assertEqual(alone, list(handle_batch([item(body) for body in bodies])))


if __name__ == "__main__":
    unittest.main()
