"""The task of the goals, and the units they are told in."""

# 24 classes, 16 shots, M = 300, alpha = 0.6, batches of 32.
CLASSES, SHOTS, FIRST, SECOND = 24, 16, 2880, 1920
BATCH = 32
# Views of the second stage that are measured where the default is to encode images anew.
VIEWS = 8
GB = 1e9
