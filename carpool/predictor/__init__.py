"""Execution times predicted from profiles of operators.

A profile (`profile`, kept in `profile_database`) has the measured times of a model's operators.
`features` are the sizes that an operator's time depends on, `roofline_terms` the terms of which it
is the sum, `thread_scaling` the effect of several threads. `regression` fits their coefficients
from `training_rows`, `cross_validation` measures the error on models left out, and `fit` is
the result. `latency_model` predicts a `carpool.onnx_graph.operator_graph.Graph` with it.
"""
