"""Functions as Deployments of a Kubernetes cluster, which also serve as the journal."""
