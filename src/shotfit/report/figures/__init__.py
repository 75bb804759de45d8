"""Figures from records; matplotlib is imported when one is drawn."""
