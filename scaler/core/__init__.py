"""The pure core of planning, with time passed in.

No clock, socket, event loop or log in here: the control loop and the simulator use the same
objects.
"""
