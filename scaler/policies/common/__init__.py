"""What several scaling policies are built from."""
