"""The control of each function: guarded plans in, calls of the OpenFaaS API out.

``round`` is one round for all functions, in which ``guard`` makes the plans: `Guard.plan`.
``controller`` is what is known of one function; ``desired_replicas`` says how many instances there
are to be just now, ``reconciler`` what is deployed, scaled or deleted for that.
"""
