"""The data plane: single requests in, whole batches out, every rider's fate his own.

``core`` is pure and holds every rule; ``policies`` decide when a batch leaves and how large it
is; ``runtime`` connects the core to sockets, processes and the clock.
"""
