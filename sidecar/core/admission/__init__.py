"""Admission control: which requests are queued, and which are refused at once.

``admission`` decides: `Admission.refusal`. For lack of time a request is refused where
``finish_predictor`` says that its answer would be late, as far as ``shedding`` allows.
"""
