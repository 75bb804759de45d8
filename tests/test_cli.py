"""The command line, in this process: what it prints, what it writes, and its exit codes."""

import json
import shutil

import pytest
import yaml
from conftest import shapes_dataset
from example_images import write_images

from shotfit.apps import cli
from shotfit.methods import get_method, list_methods


@pytest.fixture
def photos(tmp_path):
    dataset = shapes_dataset(4)
    return write_images(tmp_path / "photos", (*dataset.train, *dataset.test))


def brief_fit(photos, checkpoint, out):
    """The words of the shortest fit."""
    budget = ("--shots", 1, "--iters-per-shot", 2)
    return ("fit", photos, "--out", out, "--backbone", checkpoint, *budget)


@pytest.fixture
def model(shotfit, photos, checkpoint, tmp_path):
    code, _, err = shotfit(
        "fit",
        photos,
        "--out",
        tmp_path / "model",
        "--shots",
        2,
        "--backbone",
        checkpoint,
        "--iters-per-shot",
        5,
    )
    assert code == 0, err
    return tmp_path / "model"


def test_fit_saves_model_record_and_resolved_config(shotfit, model):
    record = json.loads((model / "record.json").read_text())
    assert record["status"] == "done"
    assert record["cost"]["iterations"] == 10
    found = json.loads((model / "evaluation.json").read_text())
    assert found["images"] == 20
    assert record["metrics"] == found["metrics"]
    assert record["trainable_parameters"][1] == 4 * 40
    config = yaml.safe_load((model / "config.yaml").read_text())
    assert config["method"] == "2sfs"
    assert config["iters_per_shot"] == 5
    code, out, _ = shotfit("info", model)
    assert code == 0
    assert "red, " not in out.split("classes")[0]
    assert "layernorm then linear" in out


def test_progress_is_plain_lines_without_a_terminal(shotfit, photos, checkpoint, tmp_path):
    arguments = brief_fit(photos, checkpoint, tmp_path / "m")
    _, out, err = shotfit(*arguments)
    assert "stage 1 (layernorm) 1/1: loss" in err
    assert "\x1b[" not in err + out
    _, _, err = shotfit(*arguments, "--quiet", "--overwrite")
    assert err == ""


def test_config_file_and_flags_on_top(shotfit, photos, checkpoint, tmp_path, model):
    code, out, err = shotfit(
        "fit",
        "--config",
        model / "config.yaml",
        "--seed",
        2,
        "--out",
        tmp_path / "again",
        "--json",
        "-q",
    )
    assert code == 0, err
    record = json.loads(out)["record"]
    assert record["experiment"]["seed"] == 2
    assert record["experiment"]["recipe"]["iters_per_shot"] == 5
    (tmp_path / "bad.yaml").write_text("shotss: 2\n")
    code, _, err = shotfit("fit", "--config", tmp_path / "bad.yaml")
    assert code == 2
    assert "Did you mean 'shots'" in err


def test_predict_evaluate_and_add_classes(shotfit, model, photos, tmp_path):
    code, out, _ = shotfit("predict", model, photos / "test", "--json", "-q")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert len(rows) == 20
    assert set(rows[0]) == {"image", "class", "probability", "answers"}
    one = photos / "test" / "red" / "0.png"
    code, out, _ = shotfit("predict", model, one, "--classes", "purple,orange", "--top", 5)
    assert "purple (" in out
    assert "orange (" in out
    code, _, _ = shotfit("predict", model, one, "--out", tmp_path / "rows.jsonl")
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 1
    code, out, _ = shotfit("evaluate", model, photos, "--json")
    found = json.loads(out)
    assert found["images"] == found["accuracy"]["images"] == 20
    assert found["metrics"] == json.loads((model / "record.json").read_text())["metrics"]
    code, out, _ = shotfit("add-classes", model, "purple", "orange")
    assert "now has 6 classes" in out
    code, out, _ = shotfit("info", model, "--json")
    assert json.loads(out)["classes"][-2:] == ["purple", "orange"]


def test_base_to_novel_reports_both_halves(shotfit, photos, checkpoint, tmp_path):
    code, out, _ = shotfit(
        *brief_fit(photos, checkpoint, tmp_path / "m"),
        "--setting",
        "base-to-novel",
        "-q",
    )
    assert code == 0
    for word in ("base classes", "novel classes", "harmonic mean", "all names"):
        assert word in out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["fit", "nowhere"], 3, "'nowhere' is no folder"),
        (["fit"], 2, "Say what to learn from"),
        (["fit", "{photos}", "--method", "layernom"], 2, "Did you mean 'layernorm'"),
        (["fit", "{photos}", "--setting", "base-to-new"], 2, "base_to_novel"),
        (["fit", "{photos}", "--shots", "0"], 2, "at least 1"),
        (["fit", "{photos}", "--shots", "99"], 3, "fewer than the 99 shots"),
        (["fit", "{photos}", "--first-fraction", "1.5"], 2, "between 0 and 1"),
        (["fit", "{photos}", "-o", "norm=all"], 2, "Did you mean 'norms'"),
        (["fit", "{photos}", "--template", "a photo"], 2, "must hold {} once"),
        (["fit", "{photos}", "--template", "{} and {}"], 2, "must hold {} once"),
        (["fit", "{photos}", "--method", "coop", "--template", "{}."], 2, "reads no template"),
        (["fit", "{photos}", "--method", "lora", "--first-fraction", "0.5"], 2, "no second stage"),
        (["fit", "{photos}", "--method", "lora", "-o", "linear.views=2"], 2, "2sfs:lora has one"),
        (["fit", "{photos}", "--method", "lora", "-o", "linear.x=2"], 2, "Unknown option"),
        (["fit", "{photos}", "--method", "lora", "--iters-per-shot", "2"], 2, "--budget shared"),
        (["fit", "{photos}", "--iters-per-shot", "-3"], 2, "at least 1"),
        (["fit", "{photos}", "--precision", "bf16", "-o", "training.precision=fp32"], 2, "Both"),
        (["fit", "{photos}", "--trace", "no/folder/t.json"], 2, "no folder no/folder"),
        (["fit", "{photos}", "--device", "abacus"], 2, "no device 'abacus' here; there is cpu"),
        (["fit", "{photos}", "--method", "2SFS:Lorra"], 2, "Did you mean 'lora'"),
        (["fit", "{photos}", "--method", "2sfs:tip-adapter-f"], 2, "no first stage"),
        (["fit", "{photos}", "--method", "zero_shot", "-o", "x=1"], 2, "none at all"),
        (["fit", "{photos}", "--budget", "free"], 2, "published"),
        (["predict", "{photos}", "x.png"], 3, "not a saved classifier"),
        (["info", "{photos}"], 3, "not a saved classifier"),
        (["no-such-command"], 2, "No such command"),
    ],
)
def test_bad_input_has_a_message_and_an_exit_code(
    shotfit, photos, checkpoint, tmp_path, arguments, code, message
):
    arguments = [str(photos) if a == "{photos}" else a for a in arguments]
    if arguments[0] == "fit":
        arguments += ["--backbone", str(checkpoint), "--out", str(tmp_path / "out"), "-q"]
    got, _, err = shotfit(*arguments)
    assert got == code, err
    assert message in err
    assert "Traceback" not in err
    assert not (tmp_path / "out").exists()


def test_a_spoilt_image_is_found_before_training(shotfit, photos, checkpoint, tmp_path):
    (photos / "train" / "red" / "0.png").write_text("not an image")
    code, _, err = shotfit("fit", photos, "--backbone", checkpoint, "--out", tmp_path / "out", "-q")
    assert code == 3
    assert "0.png is not an image" in err
    assert not (tmp_path / "out").exists()


def test_lists(shotfit):
    code, out, _ = shotfit("list-methods", "--json")
    assert code == 0
    names = [row["name"] for row in json.loads(out)]
    assert {"zero_shot", "layernorm"} <= set(names)
    selects = {row["name"]: row["selects_on"] for row in json.loads(out)}
    assert selects["zero_shot"] == selects["layernorm"] == "nothing"
    assert selects["tip_adapter_f"] == selects["lp_pp"] == "validation shots"
    for command in (["list-methods"], ["env"], ["env", "--json"], ["list-datasets"], ["--version"]):
        code, out, _ = shotfit(*command)
        assert code == 0
        assert out.strip()


def test_a_table_of_methods_of_80_columns_cuts_no_name_and_no_family(shotfit, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = shotfit("list-methods")
    assert max(map(len, out.splitlines())) == 80
    assert "…" not in out
    for name in list_methods():
        row = next(line for line in out.splitlines() if f" {name} " in line)
        assert row.rstrip("│ ").endswith(", ".join(get_method(name).families))


def test_interrupt_is_130(shotfit, monkeypatch):
    def stop():
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "app", stop)
    assert shotfit("demo")[0] == 130


def test_check_finds_what_would_stop_a_run(shotfit, photos):
    code, out, _ = shotfit("check", photos)
    assert code == 0
    assert "4 classes; 24 train, 20 test images" in out
    assert "No problems found" in out
    (photos / "train" / "red" / "0.png").write_text("no image")
    code, out, err = shotfit("check", photos, "--shots", 7)
    assert code == 3
    assert "0.png is not an image" in out
    assert "has 6 training images, fewer than the 7 shots asked for" in out
    code, out, _ = shotfit("check", photos, "--json")
    assert len(json.loads(out)["problems"]) == 1


def test_check_finds_links_that_lead_nowhere(shotfit, photos, tmp_path):
    copied = shutil.copytree(photos, tmp_path / "copied")
    image = next(path for path in sorted(copied.rglob("*")) if path.is_file())
    link = image.with_name("link" + image.suffix)
    link.symlink_to("moved" + image.suffix)
    code, out, _ = shotfit("check", copied)
    assert (code, f"no image file {link}" in out) == (3, True), out


def test_datasets_says_what_is_missing(shotfit, tmp_path):
    (tmp_path / "dtd").mkdir()
    code, out, _ = shotfit("datasets", "--root", tmp_path)
    assert code == 0
    assert "incomplete" in out
    assert out.count("absent") == 10
    code, out, _ = shotfit("datasets", "textures", "--root", tmp_path)
    assert "(missing)" in out
    assert "Images:" in out
    assert shotfit("datasets", "--json", "--root", tmp_path)[0] == 0
    code, _, err = shotfit("datasets", "eurosatt", "--root", tmp_path)
    assert code == 2
    assert "Did you mean 'eurosat'" in err


def test_splits_are_made_and_verified(shotfit, photos, tmp_path):
    arguments = (photos, tmp_path / "lists", "--shots", 2, "--seeds", 1, "--seeds", 2)
    code, out, _ = shotfit("splits", "make", *arguments)
    assert code == 0
    assert "4 lists" in out
    code, out, _ = shotfit("splits", "verify", *arguments)
    assert code == 0
    assert out.count("ok ") >= 2
    (tmp_path / "lists" / "shot_2-seed_1_train.jsonl").write_text("{")
    assert shotfit("splits", "verify", *arguments)[0] == 3
