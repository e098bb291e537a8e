"""The policy `carpool`: minimize the bill, given the batch sizes that arrivals actually produce."""
