"""The OpenFaaS provider: the gateway's REST API over instances that a backend runs.

``access_control`` asks each request for credentials, where it needs any; ``credential_options``
makes and keeps them. ``orchestrator`` is the port to what is deployed; on one machine that is
``local.orchestrator``, and ``local.replica_set`` starts and drains.
"""
