"""The data plane: turns single requests into batches, and answers each request individually.

``core`` is pure and holds every rule; ``policies`` decide when a batch leaves and how large it
is; ``runtime`` connects the core to sockets, processes and the clock.
"""
