"""The list of backbones: facts, machines' form, and the local cache."""

import json

from huggingface_hub import constants

from shotfit.apps.commands.list_backbones import list_backbones
from shotfit.backbone.catalogue import KNOWN


def test_lists_known_and_cached_models(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--someone--tiny" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    facts = {"model_type": "clip", "projection_dim": 24, "vision_config": {"patch_size": 8}}
    (snapshot / "config.json").write_text(json.dumps(facts))
    list_backbones(as_json=True)
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    base = rows["openai/clip-vit-base-patch16"]
    assert (base["image_size"], base["patch_size"], base["dim"]) == (224, 16, 512)
    assert not base["cached"]
    tiny = rows["someone/tiny"]
    assert tiny["cached"]
    assert (tiny["dim"], tiny["patch_size"], tiny["image_size"]) == (24, 8, None)


def test_no_name_is_cut_in_80_columns(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    list_backbones()
    out = capsys.readouterr().out
    for name, *_ in KNOWN:
        assert f"{name} " in out
