"""What each instance of a function gets of the machine: cores, memory, shares of GPUs.

``resources`` reads what a deployment asks for, ``allocation`` gives out no more than there is.
``cgroup_limits`` says what share of cores' time and which memory that is for a control group, and
``cgroup_v1`` and ``cgroup_v2`` write it; ``partitions`` puts all of this together.
"""
