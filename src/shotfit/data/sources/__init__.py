"""Dataset sources, one file each, found by name: every module here has `load(...) -> Dataset`."""
