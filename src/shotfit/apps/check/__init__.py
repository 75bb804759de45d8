"""The data doctor: what would stop a fit, and what would surprise after it."""
