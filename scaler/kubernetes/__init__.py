"""The scaler on a Kubernetes cluster: the servers that it plans for, and which of several plans."""
