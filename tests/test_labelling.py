"""Which images are proposed for labels: by hand-made values, and from a classifier."""

import numpy as np
import pytest
from conftest import shapes_dataset

from shotfit.errors import DataError
from shotfit.evaluation.active_learning import margins, next_batch
from shotfit.labelling import next_to_label
from shotfit.untrained import untrained

EAST, NORTH = (1.0, 0.0), (0.0, 1.0)
NONE = np.empty((0, 2), np.float32)


def array(rows):
    return np.array(rows, np.float32)


def test_margins_by_value():
    rows = array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.4, 0.4, 0.2]])
    assert margins(rows) == pytest.approx([0.2, 0.7, 0.0])
    assert margins(np.ones((2, 1), np.float32)) == pytest.approx([1, 1])


def test_the_least_certain_come_first_and_copies_do_not():
    certain = array([0.01, 0.02, 0.03, 0.9, 0.95])
    probabilities = np.stack([(1 + certain) / 2, (1 - certain) / 2], axis=1)
    embeds = array([EAST, EAST, NORTH, NORTH, NORTH])
    # Four are on the short list of two: the least certain, then the one that is unlike it.
    assert next_batch(probabilities, embeds, NONE, 2).tolist() == [0, 2]
    # What is like a labelled image comes last.
    assert next_batch(probabilities, embeds, array([EAST]), 2).tolist() == [2, 0]
    # A certain one is not on the list, however different.
    embeds = array([EAST, EAST, EAST, EAST, NORTH])
    assert 4 not in next_batch(probabilities, embeds, NONE, 2)
    assert sorted(next_batch(probabilities, embeds, NONE, 9)) == [0, 1, 2, 3, 4]


def test_a_classifier_proposes_images_with_its_answers(checkpoint):
    data = shapes_dataset(4)
    classifier = untrained(data.classnames, str(checkpoint))
    images = [example.image for example in data.train]
    proposals = next_to_label(classifier, images, [], 5)
    assert len({one.place for one in proposals}) == 5
    probabilities = classifier.predict_proba(images)
    shortlist = np.argsort(margins(probabilities), kind="stable")[:10]
    for one in proposals:
        assert one.place in shortlist
        assert one.answers[0][1] == pytest.approx(probabilities[one.place].max())
        assert [p for _, p in one.answers] == sorted((p for _, p in one.answers), reverse=True)
    # Of an image that is labelled already, the copy waits.
    again = next_to_label(classifier, images, [images[proposals[0].place]], 5)
    assert again[0].place != proposals[0].place
    assert next_to_label(classifier, [], images) == []
    with pytest.raises(DataError, match="At least one"):
        next_to_label(classifier, images, [], 0)
