"""The OpenFaaS provider: the gateway's REST API over instances that a backend runs.

``access_control`` checks the credentials of requests that need any; ``credential_options`` creates
and stores them. ``orchestrator`` is the interface to what is deployed; on one machine that is
``local.orchestrator``, and ``local.replica_set`` starts and drains replicas.
"""
