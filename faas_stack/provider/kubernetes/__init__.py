"""Functions as Deployments of a Kubernetes cluster, which is their journal, too."""
