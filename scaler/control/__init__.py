"""The control of each function: guarded plans in, calls of the OpenFaaS API out."""
