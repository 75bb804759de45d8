"""Logits of any number of images, and the metrics of them."""
