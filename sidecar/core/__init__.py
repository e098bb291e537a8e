"""The pure core: admission, queueing, batching, dispatch and retries, with time passed in.

No clock, socket, event loop or log in here: the runtime on asyncio and the simulator drive the same
objects.
"""
