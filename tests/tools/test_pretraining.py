"""How the embedded model is pretrained: its towers, its drawings, their captions and disguises."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TypeVar, cast

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.modeling_outputs import BaseModelOutputWithPooling

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import augment  # noqa: E402
import caption_vectors  # noqa: E402
import captions  # noqa: E402
import drawings  # noqa: E402
import export  # noqa: E402
import iconclip  # noqa: E402
import optimising  # noqa: E402
import pretrain  # noqa: E402
import regions  # noqa: E402
import restyle  # noqa: E402
import towers  # noqa: E402

Tower = TypeVar("Tower", bound=torch.nn.Module)


def shaken(tower: Tower) -> Tower:
    """Away from zeros and ones, so that a forgotten bias or gain shows."""
    torch.manual_seed(0)
    for parameter in tower.parameters():
        parameter.data.add_(0.05 * torch.randn_like(parameter))
    return tower


def both_towers() -> tuple[towers.VisionTower, towers.TextTower]:
    size, patch = iconclip.IMAGE_SIZE, iconclip.PATCH_SIZE
    vision = towers.VisionTower(
        size, patch, iconclip.VISION_WIDTH, iconclip.VISION_DEPTH, iconclip.DIM
    )
    text = towers.TextTower(
        iconclip.VOCAB_SIZE,
        iconclip.CONTEXT,
        iconclip.TEXT_WIDTH,
        iconclip.TEXT_DEPTH,
        iconclip.DIM,
    )
    return shaken(vision), shaken(text)


@torch.inference_mode()
def test_towers_compute_what_transformers_clip_computes():
    vision, text = both_towers()
    clip = iconclip.build().eval()
    weights = towers.transformers_weights(vision, text)
    clip.load_state_dict(weights | {"logit_scale": torch.tensor(3.0)}, strict=True)
    images = torch.randn(3, 3, iconclip.IMAGE_SIZE, iconclip.IMAGE_SIZE)
    end = iconclip.VOCAB_SIZE - 1
    ids = torch.tensor([[end - 1, 5, 6, end, end], [end - 1, 7, 8, 9, end]])
    ours = vision(images), text(ids, torch.float32)
    theirs = clip.get_image_features(pixel_values=images), clip.get_text_features(input_ids=ids)
    for mine, other in zip(ours, theirs, strict=True):
        assert isinstance(other, BaseModelOutputWithPooling)
        unit = torch.nn.functional.normalize(cast(torch.Tensor, other.pooler_output), dim=-1)
        torch.testing.assert_close(mine, unit, atol=1e-5, rtol=1e-5)


def test_positions_are_resampled_to_another_resolution():
    positions = torch.arange(17.0)[:, None].expand(17, 4).clone()
    same = towers.at_resolution({"positions": positions}, 17)["positions"]
    assert torch.equal(same, positions)
    finer = towers.at_resolution({"positions": positions}, 26)["positions"]
    assert finer.shape == (26, 4)
    assert torch.equal(finer[0], positions[0])
    # The middle of a grid stays its middle.
    torch.testing.assert_close(finer[13], positions[1:].mean(0))


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("numeric-5-box", "five"),
        ("number-circle-three-bold", "three"),
        ("5-circle", "five"),
        ("0", "zero"),
        ("circle-5", ""),
        ("dice-five", ""),
        ("one-two", ""),
        ("filter-1", ""),
    ],
)
def test_a_digit_is_told_from_a_size(name, number):
    assert captions.number_caption(name) == number


def test_enclosed_areas_and_strokes_are_told_apart():
    alpha = np.zeros((64, 64), np.uint8)
    alpha[10:40, 10:40] = 255
    alpha[14:36, 14:36] = 0
    alpha[50:60, 50:53] = 255
    parts = regions.parts_of(alpha)
    areas, strokes = parts % 16, parts // 16
    assert areas[0, 0] == 0 and areas[45, 45] == 0
    assert areas[20, 20] == 1
    assert strokes[11, 11] != strokes[55, 51]


def test_an_empty_and_a_full_drawing_have_parts():
    assert not regions.parts_of(np.zeros((64, 64), np.uint8)).any()
    full = regions.parts_of(np.full((64, 64), 255, np.uint8))
    assert len(np.unique(full)) == 1


def ring_batch(rows: int) -> drawings.Batch:
    alpha = np.zeros((64, 64), np.uint8)
    alpha[10:54, 10:54] = 255
    alpha[16:48, 16:48] = 0
    pixels = torch.zeros(rows, 4, 64, 64)
    pixels[:, 3] = torch.from_numpy(alpha).float() / 255
    pixels[rows // 2 :, 0] = pixels[rows // 2 :, 3]
    mono = torch.arange(rows) < rows // 2
    parts = torch.from_numpy(regions.parts_of(alpha)).expand(rows // 2, -1, -1)
    right = torch.zeros(rows, drawings.MOST, dtype=torch.long)
    return drawings.Batch(pixels, mono, parts, ~mono, mono, right, right[:, 0].clone())


def test_colouring_in_leaves_the_outside_clear_and_keeps_the_lines():
    torch.manual_seed(0)
    batch = ring_batch(40)
    coloured = restyle.colour_in(batch.pixels[:20, 3:], batch.parts)
    assert (coloured[:, 3, :8] == 0).all()
    assert (coloured[:, 3, 12, 12] == 1).all()
    filled = coloured[:, 3, 32, 32]
    assert 0 < filled.mean() < 1
    assert (coloured[:, :3] <= coloured[:, 3:] + 1e-6).all()


@pytest.mark.parametrize("strength", [0.0, 0.03, 1.0])
@pytest.mark.parametrize("rows", [2, 64])
def test_augmented_batches_are_images(strength, rows):
    torch.manual_seed(rows)
    images = augment.batch_of(ring_batch(rows), strength, 32)
    assert images.shape == (rows, 3, 32, 32)
    low, high = ((value - iconclip.MEAN[0]) / iconclip.STD[0] for value in (0, 1))
    assert images.min() >= low - 1e-4 and images.max() <= high + 1e-4
    assert images.std((1, 2, 3)).min() > 0


def test_without_strength_nothing_is_restyled():
    batch = ring_batch(8)
    before = batch.pixels.clone()
    assert torch.equal(restyle.restyle(batch.pixels, batch.mono, batch.parts, 0.0), before)


def pairs_folder(folder: Path, per_set: int = 30) -> Path:
    """A training list of three sets, every drawing a bar of its own."""
    rng = np.random.default_rng(0)
    names = ["dog", "cat", "sun", "flag of spain", "five"]
    icons, texts = [], []
    for prefix in ("lucide", "fonts", "twemoji"):
        for number in range(per_set):
            icons.append(f"{prefix}:{number}")
            texts.append([names[number % 5], "thing", f"{prefix} {number % 3}"])
    mono = rng.integers(0, 256, (2 * per_set, 64, 64), dtype=np.uint8)
    np.save(folder / "mono.npy", mono)
    np.save(folder / "parts.npy", np.zeros_like(mono))
    np.save(folder / "colour.npy", rng.integers(0, 256, (per_set, 64, 64, 4), dtype=np.uint8))
    (folder / "pairs.json").write_text(json.dumps({"icons": icons, "captions": texts}))
    return folder


def test_kinds_are_drawn_in_their_shares(tmp_path, monkeypatch):
    monkeypatch.setattr(drawings, "LEFT_OUT", 5)
    data = drawings.Drawings(pairs_folder(tmp_path), ("lucide:1",))
    left_out = set(data.validation.tolist())
    rng = np.random.default_rng(1)
    rows = torch.cat([data.rows(500, rng) for _ in range(8)])
    assert not left_out & set(rows.tolist())
    assert not {1, *range(10, 20)} & set(rows.tolist())
    parts = {"icon": (0, 30), "glyph": (30, 60), "emoji": (60, 90)}
    total = sum(drawings.SHARES[kind] for kind in parts)
    for kind, (low, high) in parts.items():
        part = ((rows >= low) & (rows < high)).float().mean().item()
        assert abs(part - drawings.SHARES[kind] / total) < 0.05, kind


def test_every_caption_of_a_drawing_may_be_its_target(tmp_path, monkeypatch):
    monkeypatch.setattr(drawings, "LEFT_OUT", 5)
    data = drawings.Drawings(pairs_folder(tmp_path))
    batch = data.draw(2000, np.random.default_rng(0))
    assert (batch.right == batch.target[:, None]).any(1).all()
    first = (batch.right[:, 0] == batch.target).float().mean()
    assert abs(first - drawings.FIRST) < 0.05
    assert batch.whole.any() and not batch.whole[batch.mono].any()


def test_other_right_captions_do_not_compete():
    right = torch.full((2, drawings.MOST), -1)
    right[0, :3], right[1, 0] = torch.tensor([4, 7, 9]), 2
    batch = ring_batch(2)
    batch = drawings.Batch(
        batch.pixels, batch.mono, batch.parts, batch.whole, batch.glyph, right, torch.tensor([7, 2])
    )
    candidates = torch.tensor([1, 2, 4, 7])
    logits, target = pretrain.without_other_right(torch.zeros(2, 4), candidates, batch, 10)
    assert target.tolist() == [3, 1]
    assert logits.tolist() == [[0, 0, -10, 0], [0, 0, 0, 0]]


def test_the_rate_can_be_prolonged_and_ends_at_nothing():
    rate = [optimising.schedule(seen, 1000, 100, 200) for seen in range(0, 1001, 50)]
    assert rate[0] == 0.01 and rate[2:17] == [1.0] * 15
    assert rate[17:] == sorted(rate[17:], reverse=True) and rate[-1] == 0
    longer = optimising.schedule(750, 2000, 100, 200)
    assert longer == optimising.schedule(750, 1000, 100, 200)


def trainer(run: Path, pairs: Path, images: int) -> pretrain.Trainer:
    run.mkdir(exist_ok=True)
    if not (run / "teacher.safetensors").exists():
        torch.manual_seed(0)
        count = len(drawings.Drawings(pairs).captions)
        save_file({"captions": torch.randn(count, 384)}, run / "teacher.safetensors")
    words = f"{pairs} {run} --images {images} --cooldown 16 --width 64 --depth 1 --batch 8 "
    words += "--candidates 6 --no-compile"
    return pretrain.Trainer(pretrain.parser().parse_args(words.split()))


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="Muon came with torch 2.9")
def test_an_interrupted_run_ends_as_an_uninterrupted_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(drawings, "LEFT_OUT", 5)
    for module in (pretrain, caption_vectors):
        monkeypatch.setattr(module, "DIM", 8)
    pairs = pairs_folder(tmp_path)
    trainer(tmp_path / "whole", pairs, 32).run()
    first = trainer(tmp_path / "parts", pairs, 32)
    for _ in range(2):
        first.train_step()
    first.save()
    trainer(tmp_path / "parts", pairs, 32).run()
    whole, parts = (load_file(tmp_path / name / "image.safetensors") for name in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    for name in whole.keys() - {"clock"}:
        assert torch.equal(whole[name], parts[name]), name
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["images"] == 32


def test_the_factor_of_the_second_stage_is_a_ratio_of_reach():
    model = iconclip.build()
    model.logit_scale.data.fill_(np.log(100.0))
    factor = export.tuning(model)["classifier_lr_scale"]
    assert factor == pytest.approx((512 / iconclip.DIM) ** 0.5, abs=0.05)
