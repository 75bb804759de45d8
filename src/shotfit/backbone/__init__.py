"""The backbone: a pretrained dual encoder, frozen, whatever family it is of."""

from shotfit.backbone.hub import EMBEDDED, Hints
from shotfit.backbone.model import Backbone
from shotfit.backbone.tower import Block, DeepPrompts, Tower

__all__ = ["EMBEDDED", "Backbone", "Block", "DeepPrompts", "Hints", "Tower"]
