"""A saved classifier from a stranger can at worst answer wrongly: it leads nowhere else."""

import errno
import json
import os
import shutil
import stat
import sys

import pytest
import torch
from conftest import shapes_dataset
from example_images import picture
from safetensors.torch import load_file, save_file

from shotfit import FewShotClassifier
from shotfit.backbone.reference import OutsideModelError
from shotfit.errors import DataError, UsageError
from shotfit.recipe import Recipe, Stage
from shotfit.saved_settings import CONFIG, WEIGHTS, checksum, sha256
from shotfit.system.signature import is_own, sign

RECIPE = Recipe((Stage("layernorm", training={"iterations": 2, "lr": 1e-2}),))


@pytest.fixture(scope="module")
def fitted(checkpoint):
    return FewShotClassifier(str(checkpoint), RECIPE).fit(shapes_dataset(3), shots=2)


@pytest.fixture
def saved(fitted, tmp_path):
    return fitted.save_pretrained(tmp_path / "project" / "saved")


def forge(folder, **changes):
    """As a stranger would: the checksum is no secret, the user's key is."""
    settings = json.loads((folder / CONFIG).read_text())
    for key, value in changes.items():
        (settings["experiment"] if key == "backbone" else settings)[key] = value
    settings["checksum"] = checksum(settings)
    (folder / CONFIG).write_text(json.dumps(settings))
    return folder


class TestTheModelItRefersTo:
    def test_ones_own_classifiers_find_theirs(self, saved):
        assert FewShotClassifier.from_pretrained(saved).classes

    def test_another_users_key_does_not_count(self, saved, monkeypatch, tmp_path, checkpoint):
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another"))
        with pytest.raises(OutsideModelError, match="was not saved by you"):
            FewShotClassifier.from_pretrained(saved)
        assert FewShotClassifier.from_pretrained(saved, backbone=str(checkpoint)).classes

    @pytest.mark.parametrize("absolute", [True, False])
    def test_a_folder_outside_is_not_opened_unasked(self, saved, checkpoint, absolute):
        shutil.copytree(checkpoint, saved.parent / "clip")
        forge(saved, backbone_folder=str(saved.parent / "clip") if absolute else "../clip")
        with pytest.raises(OutsideModelError, match="clip"):
            FewShotClassifier.from_pretrained(saved)

    def test_nor_one_that_the_name_alone_leads_to(self, saved, checkpoint):
        forge(saved, backbone_folder=None, backbone=str(checkpoint) + "/.")
        with pytest.raises(OutsideModelError):
            FewShotClassifier.from_pretrained(saved)

    def test_nor_through_a_link_inside(self, saved, checkpoint):
        (saved / "clip").symlink_to(checkpoint)
        forge(saved, backbone_folder="clip")
        with pytest.raises(OutsideModelError):
            FewShotClassifier.from_pretrained(saved)

    def test_one_inside_is_used(self, saved, checkpoint):
        shutil.copytree(checkpoint, saved / "clip")
        forge(saved, backbone_folder="clip", signature=None)
        assert FewShotClassifier.from_pretrained(saved).classes

    def test_no_repository_is_asked_for(self, saved, monkeypatch):
        import huggingface_hub
        from huggingface_hub.errors import LocalEntryNotFoundError

        def snapshot(name, *, local_files_only=False, **_):
            if not local_files_only:
                pytest.fail(f"{name} would have been downloaded")
            raise LocalEntryNotFoundError("not here")

        monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
        forge(saved, backbone_folder=None, backbone="stranger/clip")
        with pytest.raises(OutsideModelError, match="stranger/clip"):
            FewShotClassifier.from_pretrained(saved)

    def test_on_a_terminal_the_command_asks(self, saved, monkeypatch, shotfit, checkpoint):
        forge(saved, signature=None)
        image = picture(shapes_dataset(3).test[0])
        image.save(saved.parent / "image.png")
        command = ("predict", saved, saved.parent / "image.png")
        code, _, error = shotfit(*command)
        assert (code, "--backbone MODEL" in error) == (3, True)
        assert shotfit(*command, "--backbone", checkpoint)[0] == 0
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
        for answer, expected in ((True, 0), (False, 3)):
            asked = []
            monkeypatch.setattr(
                "typer.confirm",
                lambda text, answer=answer, asked=asked, **_: asked.append(text) or answer,
            )
            assert shotfit(*command)[0] == expected
            assert "outside of it" in asked[0]


class TestInfo:
    def test_names_that_were_removed_are_not_counted_as_added(self, saved, shotfit):
        assert shotfit("add-classes", saved, "zebra", "lynx")[0] == 0
        assert "5 (2 added later)" in shotfit("info", saved)[1]
        assert shotfit("remove-classes", saved, "zebra")[0] == 0
        assert "4 (1 added later)" in shotfit("info", saved)[1]

    def test_the_name_of_a_model_steers_no_terminal(self, saved, shotfit):
        code, out, _ = shotfit("info", forge(saved, backbone="clip\x1b[31m"))
        assert (code, "\x1b" in out, "clip\\x1b[31m" in out) == (0, False, True)


class TestItsFiles:
    def test_no_other_file_is_read_to_be_hashed(self, saved):
        settings = json.loads((saved / CONFIG).read_text())
        forge(saved, files={**settings["files"], "../../secret": "0" * 64})
        with pytest.raises(DataError, match="lists other files"):
            FewShotClassifier.from_pretrained(saved)

    @pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
    def test_links_that_lead_outside_are_not_followed(self, saved, name):
        (saved / name).rename(saved.parent / name)
        (saved / name).symlink_to(saved.parent / name)
        with pytest.raises(DataError, match="leads outside"):
            FewShotClassifier.from_pretrained(saved)

    def test_links_into_the_hubs_cache_are(self, saved, tmp_path):
        blobs, snapshot = tmp_path / "hub" / "blobs", tmp_path / "hub" / "snapshots" / "1"
        blobs.mkdir(parents=True)
        shutil.copytree(saved, snapshot)
        for name in (CONFIG, WEIGHTS):
            (snapshot / name).rename(blobs / name)
            (snapshot / name).symlink_to(blobs / name)
        forge(snapshot, backbone="iconclip", backbone_folder=None)
        with pytest.raises(DataError, match="weights differ"):  # read, and of another model
            FewShotClassifier.from_pretrained(snapshot)

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
    def test_a_pipe_is_not_waited_for(self, saved):
        (saved / CONFIG).unlink()
        os.mkfifo(saved / CONFIG)
        with pytest.raises(DataError, match="is not a file"):
            FewShotClassifier.from_pretrained(saved)

    @pytest.mark.parametrize("template", ["{} {}", "{0.__class__}", "{:>999999999}", "no place"])
    def test_a_template_is_what_a_command_line_would_take(self, saved, template):
        with pytest.raises(DataError, match="template"):
            FewShotClassifier.from_pretrained(forge(saved, template=template))

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("kept", [99]),
            ("kept", [-1]),
            ("trained_names", [1, 2, 3]),
            ("stages", []),
            ("stages", [{}]),
            ("metrics", 3),
            ("experiment", None),
            ("files", []),
        ],
    )
    def test_values_that_nobody_saved_are_refused(self, saved, key, value):
        with pytest.raises(DataError, match=r"shotfit\.json"):
            FewShotClassifier.from_pretrained(forge(saved, **{key: value}))

    @pytest.mark.parametrize("value", [10**9, 10**400, 1e300, -1])
    def test_an_option_that_would_take_all_memory_is_refused(self, saved, value):
        stages = json.loads((saved / CONFIG).read_text())["stages"]
        stages[0] = {"method": "lora", "config": {"rank": value}}
        with pytest.raises((DataError, UsageError), match="rank must"):
            FewShotClassifier.from_pretrained(forge(saved, stages=stages))

    def test_numbers_beyond_any_float_are_refused(self, saved):
        with pytest.raises(DataError, match="metrics that are no numbers"):
            FewShotClassifier.from_pretrained(forge(saved, metrics={"accuracy": 10**400}))


class TestTensors:
    def test_every_tensor_of_the_model_counts(self, saved, checkpoint, tmp_path):
        other = shutil.copytree(checkpoint, tmp_path / "other")
        state = load_file(other / "model.safetensors")
        state["visual_projection.weight"] = state["visual_projection.weight"].flip(0)
        save_file(state, other / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(DataError, match="weights differ"):
            FewShotClassifier.from_pretrained(saved, backbone=str(other))

    def test_classifiers_of_before_load(self, saved):
        settings = json.loads((saved / CONFIG).read_text())
        del settings["frozen_fingerprint"]
        (saved / CONFIG).write_text(json.dumps(settings))
        assert FewShotClassifier.from_pretrained(forge(saved)).classes

    def test_values_that_are_not_finite_are_refused(self, saved):
        state = load_file(saved / WEIGHTS)
        next(iter(state.values())).view(-1)[0] = torch.nan
        save_file(state, saved / WEIGHTS)
        forge(saved, files={WEIGHTS: sha256(saved / WEIGHTS)})
        with pytest.raises(DataError, match="not finite"):
            FewShotClassifier.from_pretrained(saved)

    def test_and_never_saved(self, saved, tmp_path):
        classifier = FewShotClassifier.from_pretrained(saved)
        next(p for p in classifier.method.parameters() if p.requires_grad).data.fill_(torch.inf)
        with pytest.raises(DataError, match="learning rate"):
            classifier.save_pretrained(saved)
        assert FewShotClassifier.from_pretrained(saved).classes  # the one before is there still


class TestTheKey:
    def test_it_is_its_owners_alone(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        signature = sign("text")
        assert is_own("text", signature)
        assert not is_own("other", signature)
        assert not is_own("text", None)
        assert not is_own("text", "é")
        assert stat.S_IMODE((tmp_path / "shotfit" / "key").stat().st_mode) == 0o600

    def test_half_of_one_is_made_anew_and_a_whole_one_stays(self, tmp_path, monkeypatch):
        """A kill of an earlier version could leave half: nothing was one's own from then on."""
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        key = tmp_path / "shotfit" / "key"
        key.parent.mkdir()
        key.write_text("")
        signature = sign("text")
        assert signature and is_own("text", signature)
        assert sign("text") == signature and list(key.parent.iterdir()) == [key]

    def test_one_that_cannot_be_written_leaves_nothing(self, tmp_path, monkeypatch):
        def full(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        with monkeypatch.context() as patch:
            patch.setattr("os.fsync", full)
            assert sign("text") is None
        assert list((tmp_path / "shotfit").iterdir()) == [] and sign("text")

    def test_without_a_home_nothing_is_ones_own(self, tmp_path, monkeypatch):
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
        assert sign("text") is None
        assert not is_own("text", "0" * 64)
