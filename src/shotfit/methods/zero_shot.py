"""Zero-shot CLIP: nothing is trained.

Paper: Radford et al., Learning Transferable Visual Models From Natural Language Supervision,
ICML 2021, https://arxiv.org/abs/2103.00020.

Equation: logits(x, c) = s cos(V(x), T("a photo of a c.")), s the frozen logit scale.

Deviations: none. The zero-shot rows of the published all-to-all tables use dataset-specific
templates; give one with the dataset's `template` option to compare with them.

Novel categories: embedded like any other name.

When to prefer it: no labelled images at all, or as the line that every method must beat.
"""

from shotfit.methods.base import Method


class ZeroShot(Method):
    """Zero-shot CLIP (see the module's docstring)."""

    first_fraction = None
