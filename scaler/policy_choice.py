"""The scaling policy that a scenario's ``policies`` and a name on the command line stand for.

A name may be a policy's own. Under ``policies`` it has its parameters; an entry that says
``policy: NAME`` as well is that policy by another name, so that a scenario can compare one policy
with different parameters::

    policies:
      infless: {alpha: 0.8}
      published: {policy: infless, search: published}
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from carpool import plugins
from carpool.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scaler.core.policy import ScalePolicy

__all__ = ["chosen_policy"]


def chosen_policy(
    name: str,
    policies: Mapping[str, Mapping[str, Any]],
    others: Mapping[str, Any] | None = None,
) -> ScalePolicy:
    """Make the policy called ``name``.

    Args:
        name: An entry of ``policies``, a policy's name, or ``pkg.module:Class``.
        policies: Parameters by name, as in a scenario.
        others: Parameters that come before those.

    Raises:
        ConfigError: nobody has the name, or the policy does not take the parameters.
    """
    params = dict(policies.get(name, {}))
    target = params.pop("policy", name)
    if not isinstance(target, str):
        expected = "a policy's name or pkg.module:Class"
        raise ConfigError([Problem(f"policies.{name}.policy", str(target), expected)])
    made: ScalePolicy = plugins.build(
        plugins.resolve("scale", target), {**params, **(others or {})}
    )
    return made
