"""The basis of plans: sizes of instances, their costs, and the capacity of servers.

The plans themselves are made by `scaler.control.guard`.
"""
