"""What ``carpool doctor`` checks, one function a check; `faas_stack.doctor.rules` lists them."""
