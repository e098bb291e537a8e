"""Partitions a machine among instances of functions: cores, memory, shares of GPUs.

``resources`` reads what a deployment requests, ``allocation`` assigns no more than there is.
``cgroup_limits`` converts this to limits of a control group, which ``cgroup_v1`` and ``cgroup_v2``
write; ``partitions`` combines all of these.
"""
