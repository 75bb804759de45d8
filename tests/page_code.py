"""The code of Markdown pages as examples for sybil: what runs it, and what it has to print.

A page is one namespace from top to bottom, in a folder of its own. Its fences are

- `python`, which runs; what it prints is shown in the `text` fence below it, and nothing else is,
- `shell`, a command a line, which runs as far as a test can run it (`COMMANDS`); a `text` fence
  below has what it prints, and a comment `# exit code 2` what it ends with,
- `text` with nothing to compare, `diff` and `json`, which are no code.

What the reader has and a test has not, a page asks for unseen, `given("photos")`, in a comment
`invisible-code-block: python`; `skip: next "why"` is a comment in front of what a test cannot run.
"""

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import SkipTest, mock

import typer
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from sybil import Document, Example, Region
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import SkipParser
from sybil.parsers.markdown.lexers import DirectiveInHTMLCommentLexer, RawFencedCodeBlockLexer

from shotfit.apps import cli

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PRINTED = "_printed"
"""What a page's last block has printed, in its namespace, until a `text` fence has shown it."""
VARYING = (
    r"\d+(\.\d+)? ?(ms|s|min|h)\b",
    r"[\d,]+(\.\d+)? images a second",
    r"[\d,]+(\.\d+)? [kMG]?B\b",
)
"""What another run prints otherwise: times, rates, and memory."""
NOT_CODE = ("text", "diff", "json")
ROOT_COMMAND = typer.main.get_command(cli.app)
EXIT_CODE = re.compile(r"# exit code (\d+)")


@dataclass(frozen=True)
class Printed:
    """What a block has printed; what commands print is often long and may be left out."""

    text: str
    must_be_shown: bool


def parse(path: Path, given: Callable[..., None]) -> Document:
    """The page, with what its unseen code may ask for."""
    document = Document.parse(str(path), SkipParser(), _fences, _unseen)
    document.namespace["given"] = given
    return document


def run(document: Document) -> list[str]:
    """Runs a page; the reasons of what it has skipped, in order.

    Raises:
        AssertionError: where something else is printed than what is shown.
    """
    skipped = []
    for example in document.examples():
        try:
            example.evaluate()
        except SkipTest as reason:
            skipped.append(str(reason))
    _all_is_shown(document.namespace, "the end")
    return skipped


def _fences(document: Document) -> Iterator[Region]:
    for region in RawFencedCodeBlockLexer(re.compile(r"(?P<language>[^\n]*)\n"))(document):
        language = region.lexemes["language"]
        run = {"python": _python, "shell": _shell, "text": _shown}.get(language)
        assert run or language in NOT_CODE, f"{document.path}: a block of {language!r}"
        if run:
            yield Region(region.start, region.end, region.lexemes["source"], run, region.lexemes)


def _unseen(document: Document) -> Iterator[Region]:
    lexer = DirectiveInHTMLCommentLexer("invisible-code-block", "python")
    for region in lexer(document):
        yield Region(region.start, region.end, region.lexemes["source"], _python)


def _python(example: Example) -> None:
    _all_is_shown(example.namespace, f"line {example.line}")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        PythonEvaluator()(example)
    if out.getvalue():
        example.namespace[PRINTED] = Printed(out.getvalue(), must_be_shown=True)


def _shell(example: Example) -> None:
    _all_is_shown(example.namespace, f"line {example.line}")
    printed = "".join(_run(line) for line in lines(example.parsed))
    example.namespace[PRINTED] = Printed(printed, must_be_shown=False)


def _shown(example: Example) -> None:
    last = example.namespace.pop(PRINTED, None)
    if last is None:
        return
    shown, printed = without_what_varies(example.parsed), without_what_varies(last.text)
    same = doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS)
    assert same, f"{example.path}, line {example.line}: shown\n{shown}\nprinted\n{last.text}"


def _all_is_shown(namespace: dict[str, Any], place: str) -> None:
    left = namespace.pop(PRINTED, None)
    assert left is None or not left.must_be_shown, f"printed before {place}:\n{left.text}"


def without_what_varies(text: str) -> str:
    """Text with times, rates and memory replaced, and without blanks at the ends of lines."""
    for pattern in VARYING:
        text = re.sub(pattern, "(varies)", text)
    return re.sub(r"[ \t]+$", "", text.replace("\r", ""), flags=re.MULTILINE)


def lines(block: str) -> list[str]:
    """Its commands with their comments, each on one line."""
    return [line for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def arguments(line: str) -> list[str]:
    """Its words as a shell would pass them on."""
    return shlex.split(os.path.expandvars(line), comments=True)


def understood(words: list[str]) -> None:
    """Parses a `shotfit` command without running it; raises what click says of a wrong one."""
    command = ROOT_COMMAND
    while inner := getattr(command, "commands", None):
        name, *words = words
        command = inner[name]
    command.make_context(command.name, words)


def _run(line: str) -> str:
    program, *words = arguments(line)
    assert program in COMMANDS, f"no test can run {line!r}: skip the block, and say why"
    return COMMANDS[program](line, words)


def _shotfit(line: str, words: list[str]) -> str:
    out, err = io.StringIO(), io.StringIO()
    code = 0
    argv = mock.patch.object(sys, "argv", ["shotfit", *words])
    with argv, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code or 0
    expected = int(match[1]) if (match := EXIT_CODE.search(line)) else 0
    assert code == expected, f"{line}: {code}\n{out.getvalue()}{err.getvalue()}"
    return err.getvalue() if code else out.getvalue()


def _make(line: str, words: list[str]) -> str:
    """Only that there is such a target: what it does is tested elsewhere, or takes hours."""
    done = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return ""


def _pip(line: str, words: list[str]) -> str:
    """Only that the package has the extras: installing is what `make release-check` does."""
    assert words[0] == "install", line
    for word in (word for word in words[1:] if not word.startswith("-")):
        asked = Requirement(f"shotfit{word[1:]}" if word.startswith(".") else word)
        if canonicalize_name(asked.name) == "shotfit":
            assert asked.extras <= PROJECT["optional-dependencies"].keys(), line
    return ""


def _curl(line: str, words: list[str]) -> str:
    """With the address of the server that the page was given, in place of the one that it says."""
    command = ["curl", "--silent", "--show-error", *words]
    command = [word.replace("localhost:8000", os.environ["PAGE_SERVER"]) for word in command]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout + "\n"


def _script(line: str, words: list[str]) -> str:
    """Only that what it runs is there."""
    files = [word for word in words if word.endswith(".py")]
    assert files, line
    for file in files:
        assert (ROOT / file).is_file(), line
    return ""


COMMANDS: dict[str, Callable[[str, list[str]], str]] = {
    "shotfit": _shotfit,
    "curl": _curl,
    "make": _make,
    "pip": _pip,
    "python": _script,
}
