"""A policy on trial: what it raises, or answers that is no plan, is told as its own fault.

Under a live scaler the guard keeps everything running whatever a policy does
(`scaler.core.guard`); who plans at the command line is to see what is wrong with it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from carpool.errors import CarpoolError, ConfigError, Problem
from carpool.plan import Plan
from scaler.core.plan_size import instances
from scaler.core.policy import Planning
from scaler.core.raised import place, raised

if TYPE_CHECKING:
    from scaler.core.policy import ScalePolicy
    from scaler.core.snapshot import Snapshot

__all__ = ["OnTrial"]

_MOST = 100_000  # ten times as many as a cluster of 2000 servers holds; each takes memory here


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
            while_planning = f"planning for {_names(snapshot)}{place(error)}"
            named = [
                dataclasses.replace(
                    problem,
                    name=f"{self._name}: {problem.name}",
                    hint="; ".join(filter(None, [problem.hint, while_planning])),
                )
                for problem in error.problems
            ]
            raise ConfigError(named) from error
        except CarpoolError:
            raise
        except (Exception, SystemExit) as error:
            expected = "a policy that plans and raises nothing"
            hint = f"plan() for {_names(snapshot)} raised {raised(error)}"
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
            count = instances(plan)
            if count > _MOST:
                expected = f"at most {_MOST} instances of a function"
                raise self._fault(expected, f"it wants {count} for {name}")

    def _fault(self, expected: str, hint: str) -> ConfigError:
        return ConfigError([Problem("--policy", self._name, expected, hint)])


def _names(snapshot: Snapshot) -> str:
    return ", ".join(view.name for view in snapshot.functions)
