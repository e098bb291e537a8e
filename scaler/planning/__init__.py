"""The basis of plans: sizes of instances, their costs, and the capacity of servers."""
