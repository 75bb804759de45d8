"""What looks at a run without changing it."""
