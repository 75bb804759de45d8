"""Every command's help ends with two examples, which the command understands."""

import shlex

import pytest
import typer

from shotfit.apps import cli

ROOT = typer.main.get_command(cli.app)


def leaves(command, words=()):
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from leaves(inner, (*words, name))
    else:
        yield words, command


COMMANDS = dict(leaves(ROOT))


def test_all_are_found():
    assert {("fit",), ("predict",), ("splits", "make")} <= COMMANDS.keys()


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_ends_with_two_examples(shotfit, monkeypatch, words):
    monkeypatch.setenv("COLUMNS", "120")
    code, out, _ = shotfit(*words, "--help")
    assert code == 0
    *_, title, first, second = [line.strip() for line in out.splitlines() if line.strip()]
    assert title == "Examples:"
    assert first != second
    for line in (first, second):
        assert len(line) <= 100
        name, *arguments = shlex.split(line)
        assert name == "shotfit"
        _understood(ROOT, arguments)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_option_says_what_it_does(words):
    assert not [one.name for one in COMMANDS[words].params if not getattr(one, "help", None)]


def _understood(command, arguments):
    """Parses an example as the command line does, without running it."""
    while hasattr(command, "commands"):
        name, *arguments = arguments
        command = command.commands[name]
    command.make_context(command.name, arguments)
