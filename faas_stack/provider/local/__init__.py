"""Instances on this machine, as processes or as containers of a Docker Engine.

``orchestrator`` has the deployed functions, and the ``replica_set`` of each starts and drains its
replicas.
"""
