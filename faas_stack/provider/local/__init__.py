"""Instances on this machine, as processes or as containers of a Docker Engine."""
