"""The scaler on a Kubernetes cluster: the servers to plan for, and the election of a leader."""
