"""The study of trust: its rules by value, its records, and the page that is made of them."""

import json

import numpy as np
import pytest
import torch
from trust import __main__ as study
from trust import fits, foreign, page, rules
from trust.cell import auroc

from shotfit.data.dataset import Dataset
from shotfit.data.sources import load_dataset
from shotfit.evaluation.cross_fitting import HeldOut, ShotFeatures
from shotfit.methods.published import TrainConfig

EYE = np.eye(4, dtype=np.float32)


def trained(rows=EYE[:2]):
    features = ShotFeatures(
        torch.tensor(EYE[None, :2]),
        torch.tensor(EYE[:2]),
        torch.tensor([0, 1]),
        torch.tensor(EYE[:2]),
        10.0,
    )
    return rules.Trained(rows, EYE[:2], EYE[3:], features, TrainConfig(iterations=2), 1)


def episode(tilt):
    """Two trained classes and a left-out one, whose images all lean towards the first row."""
    images = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [tilt, 0, 0.6, 0]], np.float32)
    labels = np.array([0, 1, 2])
    return HeldOut(images, labels, labels, EYE[:2], EYE[:2], EYE[:3], np.arange(3))


def test_a_constant_gives_left_out_classes_their_chance():
    images, names = episode(1.2).images, EYE[2:3]
    plain = np.concatenate(rules.published(trained())(images, names), axis=1)
    assert plain.argmax(axis=1).tolist() == [0, 1, 0]
    found = rules.constant(trained(), [episode(1.2)])(images, names)
    assert np.concatenate(found, axis=1).argmax(axis=1).tolist() == [0, 1, 2]
    moved = found[0] - rules.published(trained())(images, names)[0]
    assert np.unique(moved.round(4)).size == 1 and moved.max() < -6
    both = rules.scale_and_constant(trained(), [episode(1.2)])(images, names)
    assert np.concatenate(both, axis=1).argmax(axis=1).tolist() == [0, 1, 2]


def test_other_rules_answer_among_all_classes():
    images, names = episode(0.1).images, EYE[2:3]
    for scores in (
        rules.rank_fusion(trained(), [episode(0.1)]),
        rules.interpolation(trained(), [episode(0.1)]),
        rules.vocabulary_rows(trained()),
    ):
        base, named = scores(images, names)
        assert (base.shape, named.shape) == ((3, 2), (3, 1))
        assert base[:2].argmax(axis=1).tolist() == [0, 1]
        assert scores(images, names[:0])[0].shape == (3, 2)
    # Rows that hurt held-out shots are not followed.
    turned = HeldOut(**{**vars(episode(0.1)), "rows": EYE[[1, 0]]})
    back = rules.interpolation(trained(EYE[[1, 0]]), [turned])(images, names)[0]
    assert back[:2].argmax(axis=1).tolist() == [0, 1]


def test_auroc_counts_ties_by_half():
    assert auroc(np.array([2.0, 3]), np.array([1.0, 2])) == pytest.approx(100 * 3.5 / 4)


def test_the_page_says_what_its_records_hold(tmp_path):
    def record(task, gain):
        part = {"error": 8.0, "by_chance": 2.0, "bins": [[10, 0], [8.0, 0.0], [6, 0]]}
        one = {
            **{"base": 50.0, "novel": 50.0, "joint": 50.0, "closed_base": 60.0},
            **{"closed_novel": 55.0, "lost_to_unrelated": 12.0},
            "reliability": dict.fromkeys(("base", "novel", "joint"), part),
        }
        better = {**one, "base": 50.0 + gain, "novel": 50.0 + gain}
        halved = {"error": 4.0, "by_chance": 2.0, "bins": [[10, 0], [7.0, 0.0], [6, 0]]}
        better["reliability"] = dict.fromkeys(("base", "novel", "joint"), halved)
        side = {"covered": 91.0, "size": 2.0}
        rate = {"0.05": {"trained": 4.0, "other": 70.0}}
        return {
            **{"task": task, "seed": 1, "images": [40, 40, 400]},
            "options": {"shots": 4, "iters_per_shot": 100, "precision": "bf16"},
            "environment": {"platform": "Linux"},
            "rules": {"published": one, "fitted": better},
            "hindsight": {"base": 54.0, "novel": 54.0, "level": 1.0},
            "refusal": {"auroc": 90.0, "auroc_of_softmax": 70.0, "rates": rate},
            "sets": {"0.9": {"trained": side, "trained beside names": side, "novel": side}},
            "expected": {
                "test_accuracy": 60.0,
                "curve": [{"share": 0.75, "accuracy": 60.0, "images": 40}],
            },
        }

    text = (study.Path(__file__).parents[2] / "docs" / "trust.md").read_text()
    file = tmp_path / "trust.md"
    file.write_text(text)
    page.write_page([record("food", 1.0), record("flags", 3.0)], file)
    text = file.read_text()
    assert "2 runs: 2 of the eleven tasks (flags, food), seeds 1" in text
    # The gain, two points on average, of the four that hindsight has; t with one degree of freedom.
    assert "| fitted | 50.0 | 52.0 | 52.0 | 52.0 | +2.0 ± 12.7 | 50 % | 12.0 | 60.0 |" in text
    # 8 of confidence less 6 right, of ten images, twice; 6 and 2 points above chance.
    assert "| base, all names | 8.0 | +6.0 | 4.0 | +2.0 | 20.0 | 10.0 | 20.0 | 10.0 |" in text
    assert "2 runs, seeds 1. Above the softmax on 2 of 2 tasks." in text
    assert "| 90% | 91.0 % | 2.0 | 91.0 % | 2.0 | 91.0 % | 2.0 | 2 |" in text
    # Log-odds of 24.5 of 41, 0.395, and 0.4 log2(4 / 3) for the shots left out, less 0.25: 57.7 %.
    assert "in 2 of 2 runs, the estimate -2.3 ± 0.0 points off on average and 2.3 in size" in text
    # The other task's 0.154, of as many test images, in its place: what is right, by chance.
    assert "alone, in turns: 2 of 2 runs, the estimate" in text
    assert (tmp_path / "figures" / "reliability.png").stat().st_size > 5000


def test_what_has_a_record_of_the_same_model_is_not_run_again(tmp_path, monkeypatch):
    ran = []

    def fit(dataset, seed, options, folder):
        ran.append((dataset.name, seed))
        return options

    monkeypatch.setattr(study, "kept_fit", fit)
    monkeypatch.setattr(study, "cell", lambda options: {"options": options})
    flags = ["--tasks", "food", "flags", "--results", str(tmp_path), "--seeds"]
    study.main([*flags, "1"])
    study.main([*flags, "1", "2"])
    assert ran == [("food", 1), ("flags", 1), ("food", 2), ("flags", 2)]
    saved = json.loads((tmp_path / "food-seed1.json").read_text())
    saved["options"]["model"] = "another"
    (tmp_path / "food-seed1.json").write_text(json.dumps(saved))
    study.main([*flags, "1"])
    assert ran[4:] == [("food", 1)]
    monkeypatch.setattr(study, "RULE", study.RULE + 1)
    study.main([*flags, "2"])
    assert ran[5:] == [("food", 2), ("flags", 2)]


def test_what_a_fit_leaves_behind_is_kept_and_used_again(tmp_path, monkeypatch):
    shots = ShotFeatures(
        *(torch.tensor(EYE[None, :2]), torch.tensor(EYE[:2])),
        torch.arange(2),
        torch.tensor(EYE[:2]),
        10.0,
    )
    plain = {key: torch.tensor(EYE) for key in fits.TENSORS}
    options = {"shots": 1}
    made = fits.Fit(
        **plain,
        features=shots,
        training=TrainConfig(iterations=3),
        task="food",
        seed=1,
        classnames=("a", "b"),
        options=options,
        environment={},
    )
    monkeypatch.setattr(fits, "fit", lambda dataset, seed, options: made)
    food = load_dataset("demo", name="food")
    assert fits.kept_fit(food, 1, options, tmp_path) is made
    monkeypatch.setattr(fits, "fit", None)
    again = fits.kept_fit(food, 1, options, tmp_path)
    assert again.training == made.training and again.classnames == ("a", "b")
    assert torch.equal(again.features.views, shots.views) and again.features.scale == 10
    with pytest.raises(TypeError):  # made anew for other options
        fits.kept_fit(food, 1, {"shots": 2}, tmp_path)


def test_names_of_a_foreign_domain_share_no_word_with_its_classes():
    made = Dataset("digits by hand", ("handwritten three", "Rocket launch"), ())
    names, _ = fits.names_and_images_of_others(made)
    left = [names[place] for place in foreign.unrelated(made)]
    assert {"three", "rocket"} <= set(names) and not {"three", "rocket"} & set(left)
    assert len(left) > 850


def test_the_foreign_part_says_what_its_records_hold():
    def record(seed, lost):
        rule = {"trained": 60.0, "lost": {"3": {"mean": 1.0}, "100": {"mean": lost}}}
        rules = {"published": {**rule, "trained": 50.0}, "fitted": rule}
        return {"domain": "cloth", "seed": seed, "classes": 3, "images": 300, "rules": rules}

    text = foreign.table([record(1, 2.0), record(2, 4.0)])
    row = "| cloth | 3 | 300 | 50.0 | 60.0 | 1.0 ± 0.0 | 1.0 ± 0.0 | 3.0 ± 12.7 | 3.0 ± 12.7 |"
    assert row in text and "2 runs, seeds 1, 2, 10 draws" in text
