"""The pure core: admission, queueing, batching, dispatch and retries, with time passed in.

It uses no clock, socket, event loop or log: the asyncio runtime and the simulator drive the same
objects.
"""
