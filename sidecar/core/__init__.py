"""The pure core: queueing, batching, dispatch and the fate of every request, with time passed in.

No clock, socket, event loop or log in here: the runtime on asyncio and the simulator drive the same
objects.
"""
