"""Instances on this machine: processes, or containers of a Docker Engine."""
