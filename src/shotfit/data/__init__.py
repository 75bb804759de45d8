"""Datasets: sources that read them, shots and tasks, images as tensors."""
