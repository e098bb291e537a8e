"""Scaling policies, one a module or a package: each proposes instances for its functions."""
