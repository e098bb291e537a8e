"""The surroundings of the core: sockets, processes, the clock, metrics; no batching decisions.

``handler_liveness`` detects a hanging handler, and ``handler_process`` restarts it; ``readiness``
tells whether the sidecar as a whole takes requests.
"""
