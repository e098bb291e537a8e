"""The suite that every batch policy should pass; `carpool.testing.check_policy` is its door."""

from sidecar.conformance.suite import check_policy

__all__ = ["check_policy"]
