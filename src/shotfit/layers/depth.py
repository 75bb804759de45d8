"""Which blocks a method that was published for towers of twelve changes in others."""

PUBLISHED_DEPTH = 12


def scaled_block(block: int, depth: int) -> int:
    """Block `block` of 12, both counted from 1, in a tower of `depth` blocks: the same one in a
    deeper tower, the one at the same share of the depth in a shallower."""
    return (block - 1) * min(depth, PUBLISHED_DEPTH) // PUBLISHED_DEPTH + 1


def last_block(depth: int) -> int:
    """The last of 12 blocks in a tower of `depth`, counted from 1: the tower's own where it has
    fewer."""
    return min(depth, PUBLISHED_DEPTH)
