"""Every method with the same tuning (`python -m tuned`)."""
