"""Unbalanced and wrongly labelled support sets."""

from collections import Counter

import pytest

from shotfit.data.dataset import Example, Split
from shotfit.data.difficulty import unbalanced, wrongly_labelled
from shotfit.data.sources import load_dataset
from shotfit.errors import UsageError
from shotfit.experiment import Experiment, task_of


def split(classes=5, shots=16):
    return Split(
        tuple("abcdefgh"[:classes]),
        tuple(Example(f"{n}", n % classes, "") for n in range(classes * shots)),
    )


def test_shots_fall_geometrically_over_classes_in_a_drawn_order():
    counts = Counter(unbalanced(split(), 16, seed=1).labels)
    assert sorted(counts.values(), reverse=True) == [16, 8, 4, 2, 1]
    other = Counter(unbalanced(split(), 16, seed=2).labels)
    assert sorted(other.values()) == sorted(counts.values()) and other != counts
    assert unbalanced(split(), 16, seed=1) == unbalanced(split(), 16, seed=1)
    assert min(Counter(unbalanced(split(shots=4), 100, seed=1).labels).values()) == 1


def test_the_kept_images_are_the_first_of_each_class_in_their_order():
    kept = unbalanced(split(), 16, seed=1).examples
    assert [example.key for example in kept] == sorted((e.key for e in kept), key=int)
    for label in range(5):
        keys = [int(example.key) for example in kept if example.label == label]
        assert keys == list(range(label, 5 * len(keys), 5))


def test_a_share_of_images_has_the_label_of_another_class():
    whole = split()
    noisy = wrongly_labelled(whole, 0.25, seed=3)
    changed = [n for n, (a, b) in enumerate(zip(whole.labels, noisy.labels, strict=True)) if a != b]
    assert len(changed) == 20
    assert [e.key for e in noisy.examples] == [e.key for e in whole.examples]
    assert wrongly_labelled(whole, 0.25, seed=3) == noisy != wrongly_labelled(whole, 0.25, seed=4)
    # All classes are taken from and given.
    assert {whole.labels[n] for n in changed} == {noisy.labels[n] for n in changed} == set(range(5))
    everyone = wrongly_labelled(whole, 1, seed=1)
    assert all(a != b for a, b in zip(whole.labels, everyone.labels, strict=True))


def test_as_published_nothing_changes():
    assert unbalanced(split(), 1, seed=1) == wrongly_labelled(split(), 0, seed=1) == split()


@pytest.mark.parametrize("ratio", [0.5, 0, -1, float("nan")])
def test_a_ratio_below_one_is_refused(ratio):
    with pytest.raises(UsageError, match="at least 1"):
        unbalanced(split(), ratio, seed=1)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_outside_of_zero_to_one_is_refused(share):
    with pytest.raises(UsageError, match="between 0 and 1"):
        wrongly_labelled(split(), share, seed=1)
    with pytest.raises(UsageError, match="second class"):
        wrongly_labelled(split(classes=1), 0.5, seed=1)


def test_an_experiment_spoils_its_support_set_alone_and_keeps_its_identity():
    dataset = load_dataset("demo", name="animals")
    clean = task_of(Experiment(), dataset)
    hard = task_of(Experiment(imbalance=4, wrong_labels=0.1), dataset)
    assert hard.tests == clean.tests and hard.validation == clean.validation
    assert len(hard.support.examples) < len(clean.support.examples)
    assert clean.split_hash != hard.split_hash
    assert "imbalance" not in Experiment().plain() and "wrong_labels" not in Experiment().plain()
    assert Experiment(imbalance=4).plain()["imbalance"] == 4
    assert len({Experiment().id, Experiment(imbalance=4).id, Experiment(wrong_labels=0.1).id}) == 3
