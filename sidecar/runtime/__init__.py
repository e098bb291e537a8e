"""What surrounds the core: sockets, processes, the clock, metrics. It decides nothing of batches.

``handler_liveness`` finds out that a handler hangs and has it restarted, by ``handler_process``;
``readiness`` says whether the sidecar as a whole takes requests.
"""
