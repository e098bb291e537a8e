"""INFaaS (ATC'21): the policy, and three ways to solve its selection of variants."""
