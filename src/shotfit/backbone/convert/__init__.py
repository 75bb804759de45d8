"""Weights of other projects to a folder that `Backbone` loads; nothing of theirs is executed."""
