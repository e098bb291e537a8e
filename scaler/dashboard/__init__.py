"""What people look at: a page, and the last minutes of every function that it shows."""
