"""Admission control: which requests are queued, and which are refused at once.

``admission`` decides (`Admission.refusal`). A request is refused for lack of time if
``finish_predictor`` predicts that its response would be late, within the limits of ``shedding``.
"""
