"""Controls each function: turns guarded plans into calls of the OpenFaaS API.

``round`` is one round for all functions, in which ``guard`` makes the plans: `Guard.plan`.
``controller`` holds the state of one function; ``desired_replicas`` decides how many instances
there should be at the moment, ``reconciler`` what to deploy, scale or delete for that.
"""
