"""A classifier behind HTTP: dynamic batches, limits, changes of classes while it answers."""
