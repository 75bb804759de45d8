"""Trained classes and names on one scale: from embeddings to logits that can be compared.

Rows are trained among themselves; nothing sets their level against the text embedding of a name.
`Calibration` holds the few numbers that do, fitted on the shots alone (`calibration_fit`), and
`Head` the matrix that they make of a classifier's classes. Everything here is numpy on embeddings:
no model and no torch are needed to apply it.

With s the logit scale, x the unit image embedding, phi_c the trained row of class c, p_c the unit
mean embedding of its shots, t_n the unit embedding of the name n, p the mean of all p_c, K trained
classes and m names beside them, the logits are

    trained class    s (row phi_c . x + image (p_c . x - typical_image)) + level + gaussian g_c(x)
    name             s (name t_n . x - attraction max(0, t_n . p - typical_name)) - crowd
    crowd            CROWDING log(m / K) where m > K, else 0

and those of a name with images as those of a trained class with t_n in place of phi_c. g_c is what
its Gaussian says of class c (`gaussians`), for GDA alone; without it the term is 0. Where a
trained class is among the classes, all are multiplied by `sharpness`: 1, unless an earlier version
fitted it, which made held-out shots as sure as new images were expected to be right, and these too
sure (docs/trust.md).

`level` is calibrated stacking (Chao et al., An empirical study and analysis of generalized
zero-shot learning, ECCV 2016). Mean images beside the rows are the cache of Tip-Adapter (Zhang et
al., ECCV 2022) at its smallest. Lowering an answer by what it gets from content that it is not
about is contextual calibration (Zhao et al., Calibrate before use, ICML 2021).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

CROWDING = 2.0
"""How much less each name counts where there are more of them than trained classes: twice as many,
a quarter. With 1, all names together would weigh as much as all trained classes."""


@dataclass(frozen=True)
class NameWithImages:
    """How a name is answered that `images` images were given for: `name`, `image` and `level` as
    in `Calibration`."""

    images: int
    name: float
    image: float
    level: float


@dataclass(frozen=True)
class Calibration:
    """What makes logits comparable (see the module's docstring). The defaults are for shots that
    cannot say better: the means of what was fitted on the embedded suite."""

    row: float = 0.6
    image: float = 0.2
    level: float = -0.6
    name: float = 0.75
    attraction: float = 0.2
    gaussian: float = 0.0
    sharpness: float = 1.0
    typical_image: float = 0.0
    typical_name: float = 0.0
    with_images: tuple[NameWithImages, ...] = (
        NameWithImages(1, name=0.57, image=0.19, level=-0.3),
        NameWithImages(2, name=0.5, image=0.25, level=-0.55),
        NameWithImages(4, name=0.42, image=0.28, level=-0.7),
    )

    def of_images(self, images: int) -> NameWithImages:
        """The numbers for a name with so many images: between those of `with_images` in the
        logarithm of the number, and beyond them those of the nearest."""
        places = np.log([part.images for part in self.with_images])

        def between(key: str) -> float:
            values = [getattr(part, key) for part in self.with_images]
            return float(np.interp(np.log(images), places, values))

        return NameWithImages(images, between("name"), between("image"), between("level"))


@dataclass(frozen=True)
class Head:
    """Classes as one affine map from unit image embeddings to logits.

    `weight` (classes, dim) contains the logit scale; `bias` is (classes,).
    """

    weight: Array
    bias: Array

    def logits(self, images: Array) -> Array:
        """Logits (images, classes) of unit embeddings (images, dim)."""
        return images @ self.weight.T + self.bias

    def of(self, classes: NDArray) -> "Head":
        """Of these classes, given by number or by a mask."""
        return Head(self.weight[classes], self.bias[classes])


def trained_head(
    calibration: Calibration,
    scale: float,
    rows: Array,
    means: Array,
    gaussians: Head | None = None,
) -> Head:
    """Trained classes: their unit rows and mean images, (classes, dim) each, and what their
    Gaussians say where they have any."""
    weight = scale * (calibration.row * rows + calibration.image * means)
    bias = calibration.level - scale * calibration.image * calibration.typical_image
    if gaussians is None:
        return single_precision(weight, np.full(len(rows), bias))
    share = calibration.gaussian
    return single_precision(weight + share * gaussians.weight, bias + share * gaussians.bias)


def named_head(calibration: Calibration, scale: float, names: Array, center: Array) -> Head:
    """Classes known by name: unit embeddings (names, dim); `center` (dim,) is the mean of the
    trained classes' mean images."""
    drawn = np.maximum(0.0, names @ center - calibration.typical_name)
    return single_precision(
        scale * calibration.name * names, -scale * calibration.attraction * drawn
    )


def illustrated_head(
    calibration: Calibration, scale: float, names: Array, means: Array, counts: Sequence[int]
) -> Head:
    """Classes known by name and by `counts` images each, whose unit means are `means` (names,
    dim)."""
    parts = [calibration.of_images(count) for count in counts]
    numbers = np.array([[part.name, part.image, part.level] for part in parts]).reshape(-1, 3)
    name, image, level = numbers.T
    bias = level - scale * image * calibration.typical_image
    return single_precision(scale * (name[:, None] * names + image[:, None] * means), bias)


def single_precision(weight: np.ndarray, bias: np.ndarray) -> Head:
    """A map as it is kept and exported."""
    return Head(weight.astype(np.float32), bias.astype(np.float32))


def crowd(trained: int, names: int) -> float:
    """What is taken from the logit of every name when so many stand beside `trained` classes."""
    if not trained or names <= trained:
        return 0.0
    return CROWDING * float(np.log(names / trained))


def typical_image(images: Array, labels: NDArray[np.int64], means: Array) -> float:
    """The mean product of an image with the mean images of the classes that it is not of."""
    products = images @ means.T
    others = np.ones(products.shape, dtype=np.bool_)
    inside = np.flatnonzero(labels < len(means))
    others[inside, labels[inside]] = False
    return float(products[others].mean()) if others.any() else 0.0


def typical_name(names: Array, means: Array) -> float:
    """The mean product of a trained class's name with the mean images of the other classes."""
    products = names @ means.T
    others = ~np.eye(len(means), dtype=np.bool_)
    return float(products[others].mean()) if others.any() else 0.0
