"""Scaling policies, one per module or package: each proposes instances for its functions."""
