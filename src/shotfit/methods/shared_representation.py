"""What MMRL and MMRL++ are beside how their shared tokens are projected.

Not a method to choose: two papers of one scheme, whose files hold what they do not share.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from shotfit.data.support_set import SupportSet
from shotfit.layers.representation import RepresentationSpace, anchored_loss, fused, fused_rows
from shotfit.methods.base import ClassEmbeddings, Method, StepOutput


class SharedRepresentation(Method):
    """Tokens of a `space` that both encoders share give an image a second embedding, g, beside that
    of the class token, f. Trained classes are compared with both, others with f alone; f and the
    class embeddings are held near those of frozen CLIP.

    The config has `alpha`, the weight of f beside g, `weight`, that of the distances from frozen
    CLIP, and a `template`, which may be None.
    """

    reads = "template"
    starts_at_zero_shot = False
    first_fraction = 0.3
    crop_scale = (0.5, 1.0)
    space: RepresentationSpace

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        self.template = self.config.template or self.template
        # Only training needs the anchors: not registered, so not saved.
        self._anchors: Tensor | None = None

    @torch.no_grad()
    def prepare(self, support: SupportSet) -> None:
        """Embeds the class names with frozen CLIP, once."""
        self._anchors = super().encode_classes(support.classnames).weight

    def encode_images(self, pixels: Tensor) -> Tensor:
        """Unit-norm embeddings of the class token, f."""
        return self.space.images(self.backbone, pixels)[0]

    def encode_classes(self, names: Sequence[str]) -> ClassEmbeddings:
        """Embeds class names, the shared tokens behind the start of each prompt."""
        texts = [self.class_text(name) for name in names]
        return self.class_embeddings(names, self.space.texts(self.backbone, texts))

    def forward(self, pixels: Tensor, classes: ClassEmbeddings) -> Tensor:
        """Logits (batch, classes): of f and g among trained classes, of f among others."""
        f, g = self.space.images(self.backbone, pixels)
        pair = self.logits(f, classes.weight), self.logits(g, classes.weight)
        return fused(pair, self.config.alpha, classes.rows)

    def score_features(self, pixels: Tensor) -> Tensor:
        """f and, behind it, g."""
        return torch.cat(self.space.images(self.backbone, pixels), dim=-1)

    def score_rows(self, classes: ClassEmbeddings) -> tuple[Tensor, Tensor]:
        """Class embeddings for f and for g, by their weights; for novel classes those for f."""
        return self.scaled_rows(fused_rows(classes.weight, self.config.alpha, classes.rows))

    def loss(self, inputs: Tensor, labels: Tensor, names: Sequence[str]) -> StepOutput:
        """Cross-entropy of f and of g, and the distances of f and t from frozen CLIP's."""
        assert self._anchors is not None, "setup comes before training"
        texts, (f, g) = self.encode_classes(names).weight, self.space.images(self.backbone, inputs)
        with torch.no_grad():
            frozen = super().encode_images(inputs)
        config, pair = self.config, (self.logits(f, texts), self.logits(g, texts))
        anchored = (f, frozen), (texts, self._anchors)
        loss = anchored_loss(pair, labels, anchored, config.alpha, config.weight)
        return StepOutput(loss, fused(pair, config.alpha, range(len(names))))
