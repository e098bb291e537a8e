"""The data plane: single requests in, whole batches out, every request answered by itself.

``core`` is pure and holds every rule; ``policies`` decide when a batch leaves and how large it
is; ``runtime`` connects the core to sockets, processes and the clock.
"""
