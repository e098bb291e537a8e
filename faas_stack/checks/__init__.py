"""What ``carpool doctor`` looks for, one function a check; `faas_stack.checks.table` lists them."""
