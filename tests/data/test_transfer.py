"""Other datasets that a run is measured on."""

from pathlib import Path

import pytest
from PIL import Image

from shotfit.bench.grid import expand
from shotfit.data.sources import load_dataset
from shotfit.data.sources.imagenet_variants import FOLDERS, list_variants
from shotfit.data.transfer import transfer_targets
from shotfit.errors import DataError, UsageError
from shotfit.evaluation.metrics import evaluate, evaluate_transfer
from shotfit.experiment import Experiment, run
from shotfit.recipe import one_stage
from shotfit.records import Record
from shotfit.report import runs_report

NAMES = {"n02085620": "Chihuahua", "n01440764": "tench", "n03773504": "missile"}
"""Not in the order of their folders."""


@pytest.fixture
def variants(tmp_path) -> Path:
    for name, folder in FOLDERS.items():
        wnids = ["n02085620", "n03773504"] if name in ("imagenet_a", "imagenet_r") else list(NAMES)
        place = tmp_path / folder
        for wnid in wnids:
            inside = str(sorted(NAMES).index(wnid)) if name == "imagenetv2" else wnid
            (place / inside).mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(place / inside / f"{wnid}.jpeg")
        lines = "\n".join(f"{wnid} {text}" for wnid, text in NAMES.items())
        (tmp_path / Path(folder).parts[0] / "classnames.txt").write_text(lines)
    return tmp_path


def test_variants_have_the_names_of_their_folders_in_imagenets_order(variants):
    for name in list_variants():
        dataset = load_dataset("imagenet_variants", root=str(variants), name=name)
        few = name in ("imagenet_a", "imagenet_r")
        every = ("tench", "Chihuahua", "missile")
        assert dataset.classnames == (every[1:] if few else every)
        assert dataset.train == () and dataset.name == name
        for example in dataset.test:
            wnid = Path(example.key).stem
            assert dataset.classnames[example.label] == NAMES[wnid]
            assert Path(str(example.image)).is_file()


def test_what_is_wrong_with_a_variant_is_said(variants):
    with pytest.raises(UsageError, match="'imagenet_b'"):
        load_dataset("imagenet_variants", root=str(variants), name="imagenet_b")
    (variants / FOLDERS["imagenet_r"] / "n99999999").mkdir()
    with pytest.raises(DataError, match="n99999999, which classnames.txt does not list"):
        load_dataset("imagenet_variants", root=str(variants), name="imagenet_r")
    with pytest.raises(DataError, match="missing"):
        load_dataset("imagenet_variants", root=str(variants / "nowhere"), name="imagenet_a")


def test_targets_have_every_class_and_are_found_by_name(variants):
    targets = transfer_targets(["digits", "imagenet_a", "symbols@noise"], str(variants))
    assert list(targets) == ["digits", "imagenet_a", "symbols@noise"]
    assert len(targets["digits"].classnames) == 10
    with pytest.raises(UsageError, match="'digit'.*Did you mean 'digits'"):
        transfer_targets(["digit"])


def test_a_run_is_measured_elsewhere_among_the_names_there():
    experiment = Experiment(
        data={"name": "digits"},
        setting="all_to_all",
        shots=1,
        recipe=one_stage("zero_shot"),
        transfer=("travel", "flags"),
    )
    record, method = run(experiment)
    for name in ("travel", "flags"):
        (target,) = transfer_targets([name]).values()
        assert record.metrics[f"to_{name}"] == pytest.approx(
            evaluate(method, {"all": target})["all"]
        )
    mean = (record.metrics["to_travel"] + record.metrics["to_flags"]) / 2
    assert record.metrics["transfer"] == pytest.approx(mean)
    plain = Experiment(data={"name": "digits"}, setting="all_to_all", shots=1)
    assert "transfer" not in plain.plain() and experiment.plain()["transfer"] == ["travel", "flags"]
    (panel,) = (p for p in runs_report([record]).panels if p.title.startswith("Transfer"))
    cells = [cell.ours.mean for cell in panel.rows[0].cells if cell.ours]
    assert cells == [record.metrics[key] for key in ("to_travel", "to_flags", "transfer")]
    assert isinstance(record, Record)


def test_a_method_bound_to_its_classes_is_measured_where_all_are_trained():
    experiment = Experiment(
        data={"name": "digits"}, setting="all_to_all", shots=1, recipe=one_stage("tip_adapter")
    )
    _, method = run(experiment, measured=False)
    targets = transfer_targets(["digits", "flags"])
    found = evaluate_transfer(method, targets)
    assert set(found) == {"to_digits"}
    assert evaluate_transfer(method, {"digits": targets["digits"]})["transfer"] > 0


def test_grids_take_targets():
    (one,) = expand(["coop"], ["food"], transfer=["flags"])
    assert one.transfer == ("flags",)
    assert one.id != expand(["coop"], ["food"])[0].id
