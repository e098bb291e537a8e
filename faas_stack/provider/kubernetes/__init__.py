"""Functions as Deployments of a Kubernetes cluster, which also serve as the journal.

``orchestrator`` creates and changes them; ``manifests`` describes a function's Deployment, with the
image and the environment of its pods from ``pod_template``.
"""
