"""Execution times predicted from profiles of operators.

A profile (`profile`, kept in `profile_database`) has the measured times of a model's operators.
`features` are the sizes that an operator's time depends on, `roofline_terms` the terms it is a sum
of, `thread_scaling` what several threads change. `regression` fits their coefficients from
`training_rows`, `cross_validation` measures how far off that is on models left out, and `fit` is
the result. `latency_model` predicts a `graph` with it.
"""
