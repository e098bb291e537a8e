"""What each instance of a function gets of the machine: cores, memory, shares of GPUs."""
