"""Pieces of networks that two or more methods use, and nothing else."""
