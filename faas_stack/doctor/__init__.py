"""Checks of ``carpool doctor``, one function per check; `faas_stack.doctor.rules` lists them."""
