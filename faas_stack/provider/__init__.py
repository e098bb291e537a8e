"""The OpenFaaS provider: the gateway's REST API over instances that a backend runs."""
