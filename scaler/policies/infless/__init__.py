"""INFless (ASPLOS'22): the policy, and its searches."""
