"""Who may import whom: a file sees only what lies below it, and nothing heavy is loaded early.

`docs/architecture.md` draws the rooms and says what each is for. A room that is not here fails: a
new one is given its place, and its rule in that page.
"""

import ast
import graphlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from shotfit.methods import get_method, list_methods

PACKAGE = Path(__file__).parent.parent / "src" / "shotfit"

# From the bottom up. A room imports from the lines above its own, not from its neighbours.
ROOMS = """
    errors
    config averages classes
    system
    paper
    records
    data
    backbone
    layers
    methods
    training
    evaluation
    recipe runtime
    plan presets
    pace
    adaptation
    run_log
    experiment
    sharing saved_settings saved_assessment shots_assessment probe
    card
    observers saving bench timed_plan measure outside_task known_classes
    learning predicting verification
    classifier report
    estimator export untrained labelling
    serve
    apps
"""
# Rooms that see less than all that is below them: what they hold is made from values alone.
ONLY = {
    "config": {"errors"},
    "system": {"errors"},
    "averages": set(),
    "classes": {"errors"},
    "paper": {"errors", "averages"},
    "records": {"errors", "config", "system"},
    "runtime": {"errors", "classes", "system", "data", "evaluation"},
    "report": {"errors", "config", "system", "averages", "paper", "records", "methods"},
}
# The files and folders inside `data`, likewise from the bottom up.
DATA = """
    template addresses names
    images
    dataset image_files web thumbnails
    task transforms checks shifts image_hashes broken
    benchmark image_looks
    fewshot_lists difficulty prefetch contents
    decoded
    support_set holdout
    sources
    python_data
    inputs
    transfer
"""

# Who may load which package of others; one that is not here is a new dependency, and fails.
OUTSIDE = {
    "torch": """system data backbone layers methods training evaluation recipe plan presets
        pace adaptation experiment observers saving bench timed_plan measure outside_task
        probe verification saved_assessment shots_assessment known_classes predicting classifier
        export apps""",
    "transformers": "backbone",
    "huggingface_hub": "system backbone apps",
    "safetensors": "backbone training saving",
    "numpy": """data evaluation measure predicting estimator report runtime export serve labelling
        apps""",
    "sklearn": "estimator",
    "onnx": "export",
    "fastapi": "serve apps",
    "starlette": "serve apps",
    "gradio": "apps",
    "pydantic": "serve",
    "prometheus_client": "serve",
    "uvicorn": "serve apps",
    "h11": "serve",
    "peft": "export",
    "onnxruntime": "runtime export",
    "tokenizers": "runtime",
    "PIL": "data",
    "pillow_heif": "data",
    "yaml": "config sharing apps",
    "filelock": "system",
    "ray": "system serve",
    "matplotlib": "report apps",
    "tensorboard": "observers",
    "wandb": "observers",
    "mlflow": "observers",
    "rich": "observers report apps",
    "typer": "apps",
}


def levels(text):
    return {
        name: level for level, line in enumerate(text.split("\n")) for name in line.split() if name
    }


LEVEL, DATA_LEVEL = levels(ROOMS), levels(DATA)
FILES = sorted(
    path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem[0] != "_"
)
every_file = pytest.mark.parametrize(
    "path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix()
)


def module_of(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


MODULES = {module_of(path) for path in FILES}


def imports(path):
    """Modules of ours that a file imports anywhere, as tuples of their parts; type-checking blocks
    left out."""
    tree = ast.parse(path.read_text())
    skipped = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and getattr(block.test, "id", "") == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            parts = tuple(name.split("."))[1:]
            if name.startswith("shotfit.") and parts[0] != "__version__":
                yield parts if parts in MODULES else parts[:-1] or parts


def calls(path):
    """Dotted names that a file calls, such as "torch.device"."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def imported_names(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.module and not node.level, "say the whole name of a module"
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_every_room_has_its_place():
    assert {module_of(path)[0] for path in FILES} == set(LEVEL)
    inside = {
        module_of(path)[1] for path in FILES if module_of(path)[:1] == ("data",) != module_of(path)
    }
    assert inside == set(DATA_LEVEL)
    assert set(ONLY) < set(LEVEL)


def test_the_page_has_the_rule_of_every_room():
    page = (PACKAGE.parents[1] / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert set(LEVEL) <= set(rows), "the table of docs/architecture.md"


@every_file
def test_imports_point_downwards(path):
    own, *inside = module_of(path)
    for module in imports(path):
        room = module[0]
        if own == room == "data":
            assert len(module) > 1 and inside, "data/__init__.py stands for nothing"
            below = DATA_LEVEL[module[1]] < DATA_LEVEL[inside[0]]
            assert below or module[1] == inside[0], f"imports {'.'.join(module)}"
        elif room != own:
            assert LEVEL[room] < LEVEL[own], f"imports {'.'.join(module)}"
            assert room in ONLY.get(own, LEVEL), f"imports {'.'.join(module)}"


def test_no_files_import_each_other_in_circles():
    graph = {module_of(path): set(imports(path)) - {module_of(path)} for path in FILES}
    graphlib.TopologicalSorter(graph).prepare()


def test_setup_and_restore_are_the_base_class_own():
    """They set the trained names, which a method that replaced them would forget."""
    for name in (*list_methods(), "linear"):
        assert not {"setup", "restore"} & set(vars(get_method(name)))


METHODS = [path for path in FILES if path.parent == PACKAGE / "methods"]


@pytest.mark.parametrize("path", METHODS, ids=lambda path: path.stem)
def test_methods_see_no_other_method_no_file_and_no_optimiser(path):
    shared = ("base", "published", "shared_representation")
    for module in imports(path):
        if module[0] == "methods" and path.stem != "__init__":
            assert module[1] in shared, f"imports {'.'.join(module)}"
    assert not {"open", "print", "torch.device"} & set(calls(path))
    assert not any(name.startswith("torch.optim") for name in imported_names(path))


PICKS = re.compile(
    r"torch\.device|torch\.(cuda|xpu|mps|backends\.mps)\.(is_available|device_count|current_device)"
    r"|torch\.(accelerator|set_default_device)\b.*|.*\.cuda"
)


@every_file
def test_only_an_experiment_picks_devices_and_nobody_seeds_globally(path):
    called = set(calls(path))
    assert not called & {"torch.manual_seed", "torch.seed", "random.seed", "np.random.seed"}
    if module_of(path) != ("experiment",):
        assert not [name for name in called if PICKS.fullmatch(name)]


@every_file
def test_packages_of_others_have_their_rooms(path):
    room = module_of(path)[0]
    for name in imported_names(path):
        package = name.partition(".")[0]
        if package in sys.stdlib_module_names or package in ("shotfit", "_typeshed"):
            continue
        assert package in OUTSIDE, f"{package} has no room"
        assert room in OUTSIDE[package].split(), f"{room} imports {package}"
    if room == "data":
        assert not any(name.startswith("torch.nn") for name in imported_names(path))


@every_file
def test_only_the_command_line_and_observers_print(path):
    assert module_of(path)[0] in ("apps", "observers") or "print" not in calls(path)


@every_file
def test_files_are_one_idea_each(path):
    assert len(path.read_text().splitlines()) <= 400
    assert path.stem not in ("utils", "helpers", "common", "misc")


def loaded_after(code):
    """Heavy packages that are loaded once `code` has run in a process of its own."""
    heavy = ("torch", "transformers", "numpy", "matplotlib", "ray", "PIL")
    out = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; {code}; print([m for m in {heavy} if m in sys.modules])",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
    )
    return set(ast.literal_eval(out.stdout.strip()))


def test_help_loads_nothing_heavy():
    assert loaded_after("from shotfit.apps import cli") == set()


def test_reports_are_made_without_torch():
    rooms = ("paper", "records", "report")
    names = [".".join(("shotfit", *module)) for module in MODULES if module[0] in rooms]
    assert not {"torch", "transformers", "ray"} & loaded_after(f"import {', '.join(names)}")


def test_front_door_is_small():
    import shotfit

    assert len(shotfit.__all__) <= 20
    for name in shotfit.__all__:
        assert getattr(shotfit, name) is not None
