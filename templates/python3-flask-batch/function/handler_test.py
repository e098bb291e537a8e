"""Tests of this function; in its folder: ``python -m unittest handler_test``."""

import unittest

from handler import app


class HandlerTest(unittest.TestCase):
    """What callers can rely on."""

    def ask(self, *instances: object) -> tuple[int, dict[str, list[object]]]:
        """Return the status and the JSON of one answer."""
        answer = app.test_client().post("/", json={"instances": instances})
        return answer.status_code, answer.get_json()

    def test_every_instance_is_answered_in_order(self) -> None:
        """A prediction belongs to the instance in its place."""
        expected = {"predictions": ["Hello, Ada!", "Hello, world!"]}
        self.assertEqual((200, expected), self.ask("Ada", ""))

    def test_a_batch_gets_the_answers_its_instances_get_alone(self) -> None:
        """An answer does not depend on what else is in the batch."""
        instances = ["one", "two", "three"]
        alone = [self.ask(instance)[1]["predictions"][0] for instance in instances]
        self.assertEqual(alone, self.ask(*instances)[1]["predictions"])

    def test_what_cannot_be_used_is_an_error(self) -> None:
        """An invalid instance is refused."""
        self.assertEqual(400, self.ask("Ada", 5)[0])


if __name__ == "__main__":
    unittest.main()
