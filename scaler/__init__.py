"""The control plane: decides how many instances of which size run, and when they are warmed.

``policies`` propose; ``control`` turns proposals into plans (`control.guard`) with the help of
``planning``, and decides what to deploy. All of these are pure; I/O and waiting are left to the
modules beside them.
"""
