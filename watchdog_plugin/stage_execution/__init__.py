"""Models that run stage by stage: the interface of stages, and the thread that runs them."""
