"""The Docker backend, in which every instance is a container."""
