"""The classes of a fitted classifier, embedded once, however often they are asked for."""

from functools import cached_property

import torch

from shotfit.classes import ClassList
from shotfit.methods.base import ClassEmbeddings, Method


class KnownClasses:
    """A method and the classes that it answers with."""

    def __init__(
        self, method: Method, classes: ClassList, everything: ClassEmbeddings | None = None
    ) -> None:
        """`everything` are the embeddings of all names in `classes`, where they are known."""
        self.method = method
        self.classes = classes
        if everything is not None:
            self.everything = everything

    @cached_property
    @torch.no_grad()
    def everything(self) -> ClassEmbeddings:
        """Every name that was trained or added, embedded; also those that were removed since."""
        return self.method.encode_classes(self.classes.everything)

    @cached_property
    def active(self) -> ClassEmbeddings:
        """The classes that are answered with, embedded."""
        everything, places = self.everything, self.classes.active
        active = torch.tensor(places, device=everything.weight.device)
        each = everything.per_prompt
        return ClassEmbeddings(
            names=self.classes.names,
            weight=everything.weight[active],
            rows=tuple(everything.rows[place] for place in places),
            per_prompt=None if each is None else each[:, active],
        )

    def changed(self, classes: ClassList) -> "KnownClasses":
        """With other classes; what is embedded is not embedded again."""
        if classes.everything != self.classes.everything:
            return KnownClasses(self.method, classes)
        return KnownClasses(self.method, classes, self.everything)
