"""The control plane: decides how many instances of which size run, and when they are warmed.

``policies`` propose, from ``arrivals`` and ``planning``; ``control`` turns proposals into plans
(`control.guard`) and decides what to deploy. All of these are pure; I/O and waiting are left to the
modules beside them.
"""
