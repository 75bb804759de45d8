"""The task of the goals, and the units they are told in."""

# 24 classes, 16 shots, M = 300, alpha = 0.6, batches of 32.
CLASSES, SHOTS, FIRST, SECOND = 24, 16, 2880, 1920
BATCH = 32
# Cached views of the second stage that are told beside the default, images encoded anew.
VIEWS = (8, 16)
GB = 1e9
