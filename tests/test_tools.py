"""The tests' own means: a missing program skips at home, fails in CI, and waiting has an end."""

from __future__ import annotations

import asyncio

import pytest

from tests.tools import require_tool
from tests.waiting import wait_until, wait_until_async


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("CARPOOL_TEST_WITHOUT", raising=False)


def test_a_tool_that_is_there_is_returned() -> None:
    """The path of an installed program comes back."""
    assert require_tool("sh").endswith("/sh")


def test_a_missing_tool_skips_at_home() -> None:
    """Without CI a missing program skips the test, with its name."""
    with pytest.raises(pytest.skip.Exception, match="no-such-tool is not on the PATH"):
        require_tool("no-such-tool")


def test_a_missing_tool_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """In CI a missing program is a failure, unless CI has said that it lacks it."""
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("CARPOOL_TEST_WITHOUT", "other-tool")
    with pytest.raises(pytest.fail.Exception, match="no-such-tool"):
        require_tool("no-such-tool")
    with pytest.raises(pytest.skip.Exception, match="other-tool"):
        require_tool("other-tool")


def test_waiting_returns_when_it_is_true_and_fails_when_it_never_is() -> None:
    """Both forms of waiting return on truth, and name what never came."""
    answers = iter([0, 0, 1, 0, 1])
    wait_until(lambda: next(answers))
    asyncio.run(wait_until_async(lambda: next(answers)))
    with pytest.raises(AssertionError, match=r"the moon did not come true within 0\.02 s"):
        wait_until(lambda: False, 0.02, "the moon")
    with pytest.raises(AssertionError, match="the moon"):
        asyncio.run(wait_until_async(lambda: False, 0.02, "the moon"))
