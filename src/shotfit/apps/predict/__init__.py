"""What `shotfit predict` does: a stream of images in, rows of predictions out."""
