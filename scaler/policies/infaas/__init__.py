"""INFaaS (ATC'21): the policy, and three solvers for its selection of variants."""
