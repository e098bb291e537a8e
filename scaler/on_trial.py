"""A policy on trial: what it raises, or answers that is no plan, is told as its own fault.

Under a live scaler the guard keeps everything running whatever a policy does
(`scaler.core.guard`); who plans at the command line is to see what is wrong with it.
"""

from __future__ import annotations

import dataclasses
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.errors import CarpoolError, ConfigError, Problem
from carpool.plan import Plan
from scaler.core.policy import Planning

if TYPE_CHECKING:
    from scaler.core.policy import ScalePolicy
    from scaler.core.snapshot import Snapshot

__all__ = ["OnTrial"]


class OnTrial:
    """A policy whose failures name it.

    Args:
        name: What the user calls it.
        policy: Anybody's.
    """

    def __init__(self, name: str, policy: ScalePolicy) -> None:
        self._name = name
        self._policy = policy

    def plan(self, snapshot: Snapshot) -> Planning:
        """As `ScalePolicy.plan`.

        Raises:
            ConfigError: it has raised something, or answered something else than plans.
        """
        try:
            planning = self._policy.plan(snapshot)
        except ConfigError as error:
            named = [dataclasses.replace(p, name=f"{self._name}: {p.name}") for p in error.problems]
            raise ConfigError(named) from error
        except CarpoolError:
            raise
        except Exception as error:
            hint = f"{type(error).__name__}: {error}{_where(error)}"
            expected = "a policy that plans and raises nothing"
            raise self._fault(expected, hint) from error
        self._check(planning, {view.name for view in snapshot.functions})
        return planning

    def _check(self, planning: object, known: set[str]) -> None:
        if not isinstance(planning, Planning):
            expected = "a Planning of its method plan"
            raise self._fault(expected, f"it answers {planning!r:.80}")
        for name, plan in planning.plans.items():
            if name not in known or not isinstance(plan, Plan):
                expected = f"a Plan for functions of {', '.join(sorted(known))}"
                raise self._fault(expected, f"it answers {plan!r:.80} for {name!r:.80}")

    def _fault(self, expected: str, hint: str) -> ConfigError:
        return ConfigError([Problem("--policy", self._name, expected, hint)])


def _where(error: Exception) -> str:
    """The line that has raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
