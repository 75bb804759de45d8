"""No call in the package hands a file to something that would run what is in it.

What strangers' files do when they are read is in tests/test_saved_by_strangers.py,
tests/backbone/test_torchscript.py and tests/backbone/test_hub.py; here, that no other call does it.
"""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "shotfit"
RUNS = {
    *(
        "pickle.load",
        "pickle.loads",
        "torch.jit.load",
        "torch.hub.load",
        "yaml.load",
        "marshal.loads",
    ),
    *("yaml.unsafe_load", "yaml.full_load", "eval", "exec", "os.system", "shelve.open"),
}
"""Functions that run what they are given."""


def calls():
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                yield path.relative_to(PACKAGE).as_posix(), ast.unparse(node.func), node


def given(node, name):
    """The value of an option in a call; None where it is not given."""
    values = [word.value for word in node.keywords if word.arg == name]
    return ast.unparse(values[0]) if values else None


CALLS = list(calls())


def test_there_are_calls_to_look_at():
    names = {name for _, name, _ in CALLS}
    assert {"Image.open", "torch.load", "AutoConfig.from_pretrained"} <= names


@pytest.mark.parametrize("name", sorted(RUNS))
def test_nothing_that_runs_a_file_is_called(name):
    assert [place for place, called, _ in CALLS if called == name] == []


def test_no_program_is_started_through_a_shell():
    assert [place for place, _, node in CALLS if given(node, "shell") not in (None, "False")] == []


def test_torch_reads_weights_alone():
    for place, name, node in CALLS:
        if name == "torch.load":
            assert given(node, "weights_only") == "True", place


def test_pillow_opens_declared_formats_alone():
    for place, name, node in CALLS:
        if name == "Image.open":
            assert given(node, "formats"), place


def test_transformers_runs_no_code_of_a_model():
    """Its classes that choose by the config run what `auto_map` names, unless they are told not to;
    arrays of NumPy would be unpickled."""
    for place, name, node in CALLS:
        owner, _, method = name.rpartition(".")
        if method == "from_pretrained" and owner.startswith("Auto"):
            assert given(node, "trust_remote_code") == "False", place
        if name in ("np.load", "numpy.load"):
            assert given(node, "allow_pickle") in (None, "False"), place
