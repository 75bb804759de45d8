"""Who may import whom: a file sees only what lies below it, and nothing heavy is loaded early."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "shotfit"

# From the bottom up; a module may import modules of its own layer and of those above it here.
LAYERS = [
    ["__version__", "errors"],
    ["config", "vocabulary"],
    ["system"],
    ["records"],
    ["data"],
    ["backbone"],
    ["layers"],
    ["methods"],
    ["training", "evaluation"],
    ["recipe"],
    ["experiment"],
    ["observers"],
    ["bench", "paper", "report", "classifier", "saving"],
    ["apps"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def modules():
    return sorted(p for p in PACKAGE.rglob("*.py") if p.parent != PACKAGE or p.stem[0] != "_")


def imports(path):
    """Modules of ours that a file imports anywhere, type-checking blocks left out."""
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
            if name.startswith("shotfit."):
                yield name.split(".")[1:]


def room(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_every_room_is_known():
    assert {room(path) for path in modules()} <= set(LEVEL)


@pytest.mark.parametrize("path", modules(), ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_imports_point_downwards(path):
    own = LEVEL[room(path)]
    for names in imports(path):
        assert LEVEL[names[0]] <= own, f"imports {'.'.join(names)}"


METHODS = sorted((PACKAGE / "methods").glob("*.py"))


@pytest.mark.parametrize("path", METHODS, ids=lambda p: p.stem)
def test_methods_import_no_other_method(path):
    allowed = {"base", "published"}
    for names in imports(path):
        if names[0] == "methods" and path.stem != "__init__":
            assert names[1] in allowed, f"imports the method {names[1]}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_files_are_one_idea_each(path):
    assert len(path.read_text().splitlines()) <= 400


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from shotfit.apps import cli; "
        "print([m for m in ('torch', 'transformers', 'numpy', 'matplotlib', 'ray', 'PIL') "
        "if m in sys.modules])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
    )
    assert out.stdout.strip() == "[]"


def test_front_door_is_small():
    import shotfit

    assert len(shotfit.__all__) <= 20
    for name in shotfit.__all__:
        assert getattr(shotfit, name) is not None
