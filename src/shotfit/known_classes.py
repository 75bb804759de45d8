"""The classes of a fitted classifier, embedded once, however often they are asked for."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import torch
from torch import Tensor

from shotfit.classes import ClassList
from shotfit.errors import DataError
from shotfit.evaluation.scoring import GivenImages
from shotfit.methods.base import ClassEmbeddings, Method

GIVEN = "given_images"


def given_means(tensors: Mapping[str, Tensor], classes: ClassList) -> Tensor | None:
    """What `KnownClasses.tensors` saved.

    Raises:
        DataError: when it does not fit the classes.
    """
    means = tensors.get(GIVEN)
    if (means is None and any(classes.images)) or (
        means is not None and (means.ndim != 2 or len(means) != len(classes.added))
    ):
        raise DataError("What was saved of the images of added classes does not fit them.")
    return means


class KnownClasses:
    """A method and the classes that it answers with."""

    def __init__(
        self,
        method: Method,
        classes: ClassList,
        everything: ClassEmbeddings | None = None,
        means: Tensor | None = None,
    ) -> None:
        """`everything` are the embeddings of all names in `classes`, where they are known; `means`
        (added, dim) the unit mean embeddings of the images of added ones, zeros for none."""
        self.method = method
        self.classes = classes
        self.means = (
            torch.zeros(len(classes.added), method.backbone.dim) if means is None else means
        )
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

    def given(self, classes: ClassEmbeddings) -> GivenImages:
        """The images that names among `classes` were given: each such name that is answered with
        has its own, and a name that is not trained finds them by what it is called."""
        behind = len(self.classes.trained)
        added = [place - behind for place in self.classes.active if place >= behind]
        by_name: dict[str, list[int]] = {}
        for place in added:
            by_name.setdefault(self.classes.added[place], []).append(place)
        counts, means = [], torch.zeros(len(classes.names), self.means.shape[1])
        for number, (name, row) in enumerate(zip(classes.names, classes.rows, strict=True)):
            place = by_name[name].pop(0) if row < 0 and by_name.get(name) else None
            counts.append(0 if place is None else self.classes.images[place])
            if place is not None:
                means[number] = self.means[place]
        return GivenImages(tuple(counts), means.to(classes.weight.device))

    def added(
        self, names: Sequence[str], images: Sequence[int] | None = None, means: Tensor | None = None
    ) -> "KnownClasses":
        """With classes known by name and, where `images` says how many, by their `means` (names,
        dim)."""
        classes = self.classes.with_added(names, images)
        new = len(classes.added) - len(self.classes.added)
        if means is None:
            means = torch.zeros(new, self.means.shape[1])
        return KnownClasses(self.method, classes, None, torch.cat([self.means, means.cpu()]))

    def tensors(self) -> dict[str, Tensor]:
        """What is saved of the images that names were given; empty where none were."""
        return {GIVEN: self.means} if any(self.classes.images) else {}

    def without(self, names: Sequence[str]) -> "KnownClasses":
        """Without these classes; what is embedded is not embedded again."""
        return KnownClasses(self.method, self.classes.without(names), self.everything, self.means)
