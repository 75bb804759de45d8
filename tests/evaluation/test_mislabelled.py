"""Which images are suspected, by hand-made embeddings."""

import pytest
import torch
from torch.nn import functional as F

from shotfit.evaluation.confusable import alike_bound, confusable, pair_cosines
from shotfit.evaluation.mislabelled import suspects


@pytest.fixture
def clusters():
    """Four classes of six images around orthogonal directions, and the names' embeddings."""
    generator = torch.Generator().manual_seed(3)
    centres = torch.eye(4, 16)
    labels = [number // 6 for number in range(24)]
    noise = 0.15 * torch.randn(24, 16, generator=generator)
    features = F.normalize(centres[torch.tensor(labels)] + noise, dim=-1)
    return features, labels, centres


def test_a_swapped_label_is_found_with_the_class_it_looks_like(clusters):
    features, labels, names = clusters
    assert suspects(features, labels, names) == []
    wrong = [*labels]
    wrong[0], wrong[13] = 3, 0
    found = suspects(features, wrong, names)
    assert {(one.place, one.looks_like) for one in found} == {(0, 0), (13, 2)}
    assert [one.margin for one in found] == sorted((one.margin for one in found), reverse=True)
    # Five images of the class are left, and all are nearest; one of class 0's is now elsewhere.
    assert {one.place: (one.agreeing, one.neighbours) for one in found} == {0: (5, 5), 13: (5, 5)}


def test_both_witnesses_must_agree(clusters):
    features, labels, names = clusters
    wrong = [*labels]
    wrong[0] = 3
    # Names that are told the other way round speak for the label.
    assert suspects(features, wrong, names[[3, 1, 2, 0]]) == []


def test_the_only_image_of_a_class_is_not_suspected(clusters):
    features, labels, names = clusters
    # Six of class 0 and one of class 1, which is in fact of class 0 as well.
    assert suspects(features[:7].roll(1, 0), [1, 0, 0, 0, 0, 0, 0], names) == []
    few = torch.stack([features[0], features[6], features[12]])
    assert suspects(few, [1, 2, 0], names) == []
    assert suspects(features[:1], [0], names) == suspects(features, [0] * 24, names[:1]) == []


def test_classes_without_images_are_not_looked_for(clusters):
    features, labels, names = clusters
    more = torch.cat([names, features[:1]])
    assert suspects(features, labels, more) == []


def test_pairs_of_names_are_alike_above_what_everyday_words_are():
    embeds = F.normalize(
        torch.tensor([[1.0, 0, 0], [1.0, 0.1, 0], [0, 1.0, 0], [0, 1.0, 0.6]]), dim=-1
    )
    pairs, cosines = pair_cosines(embeds)
    assert pairs.shape == (2, 6) and cosines[0] == pytest.approx(0.995, abs=1e-3)
    found = confusable(embeds, 0.8)
    assert [pair[:2] for pair in found] == [(0, 1), (2, 3)]
    assert found[1][2] == pytest.approx(1 / 1.36**0.5, abs=1e-5)

    def encode(texts):
        angles = torch.tensor([float(text) for text in texts])
        return torch.stack([angles.cos(), angles.sin()], dim=-1)

    # Of two words at right angles the one cosine is 0; the bound is the largest of many.
    assert alike_bound(encode, ["0", str(torch.pi / 2)]) == pytest.approx(0, abs=1e-6)
    assert alike_bound(encode, ["0", "0.1", "3"]) == pytest.approx(
        float(torch.tensor([0.1, 3.0, 2.9]).cos().quantile(0.999)), abs=1e-6
    )
