"""The parts of `scaler.policies.infaas`: what a task is, and three ways to solve one."""
