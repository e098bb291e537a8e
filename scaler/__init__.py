"""The control plane: how many instances of which size should run, and when to warm them.

``policies`` propose, from ``arrivals`` and ``planning``; ``control`` makes plans of what they
propose (`control.guard`) and says what to deploy. All of these are pure; the modules beside them do
what waits.
"""
