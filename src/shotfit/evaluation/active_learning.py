"""Which unlabelled images to have labelled next: those that the classifier is least certain of, and
among them those that are least like each other and like what is labelled already.

Sources. Uncertainty is the margin between the two likeliest classes (Scheffer, Decomain and Wrobel,
Active Hidden Markov Models for Information Extraction, IDA 2001). Images of a batch are chosen
among the `SHORTLIST` times as many with the smallest margins, as Zhdanov does (Diverse mini-batch
Active Learning, 2019, https://arxiv.org/abs/1901.05954), there by clustering; here by the greedy
k-center rule, which takes what is farthest from everything labelled or taken (Sener and Savarese,
Active Learning for Convolutional Neural Networks: A Core-Set Approach, ICLR 2018,
https://arxiv.org/abs/1708.00489).
"""

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.floating]

SHORTLIST = 2
"""Times as many uncertain images as are asked for, from which the diverse ones are taken."""


def margins(probabilities: Values) -> Values:
    """How much likelier the likeliest class of each row (images, classes) is than the next one; of
    a single class, how likely."""
    ordered = np.sort(probabilities, axis=1)[:, ::-1]
    return ordered[:, 0] - (ordered[:, 1] if ordered.shape[1] > 1 else 0)


def next_batch(
    probabilities: Values, embeds: Values, labelled: Values, count: int
) -> NDArray[np.int64]:
    """The places of the (at most) `count` images to label next, the most useful first.

    `probabilities` (images, classes) are the classifier's, `embeds` (images, dim) and `labelled`
    (labelled images, dim) unit embeddings; of equals, the first image is taken.
    """
    uncertain = np.argsort(margins(probabilities), kind="stable")[: SHORTLIST * count]
    near = embeds[uncertain]
    # Twice the farthest: the cosine distance is at most 2.
    distance = np.full(len(uncertain), 4.0)
    if len(labelled):
        distance = 1 - (near @ labelled.T).max(axis=1)
    taken: list[int] = []
    for _ in range(min(count, len(uncertain))):
        farthest = int(distance.argmax())
        taken.append(farthest)
        distance = np.minimum(distance, 1 - near @ near[farthest])
        distance[taken] = -np.inf
    return uncertain[taken]
