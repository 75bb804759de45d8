"""The pages of the site that are made from the code: methods, commands, changelog and log.

    mkdocs build --strict    # runs this, by mkdocs.yml

A method's page has the parts of its docstring under the same headings on every page, its options as
`-o` takes them, and the printed numbers; a command's section is its `--help`.
"""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import typer

sys.path.insert(0, str(Path(__file__).parent))

from notebook_pages import notebooks
from notebook_pages import page as notebook_page
from papers import PARTS, elsewhere, escape, parse_docstring, printed_lines

from shotfit.apps import cli
from shotfit.apps.method_list import describe
from shotfit.methods import get_method, list_methods, published_names
from shotfit.report.labels import method_label

REPOSITORY = Path(__file__).parent.parent


def pages() -> dict[str, str]:
    """Every generated page by its path in the site."""
    found = {f"methods/{name}.md": method_page(name) for name in list_methods()}
    found["methods/index.md"] = method_index()
    found["reference/commands.md"] = command_page()
    for source, target in (("CHANGELOG.md", "changelog.md"), ("LOG.md", "log.md")):
        text = (REPOSITORY / source).read_text(encoding="utf-8")
        found[target] = text.replace("](docs/", "](")
    return found


def method_index() -> str:
    """All methods in a table, each with a link to its page."""
    lines = [
        "# Methods",
        "",
        "`shotfit fit photos --method NAME` tunes with one of them alone, `--method 2sfs:NAME`",
        "takes it as a first stage. *Selects on*: where it chooses what training leaves open.",
        "",
        "| method | what it does | first stage | unseen names | selects on |",
        "|---|---|---|---|---|",
    ]
    for name in list_methods():
        method = get_method(name)
        title, _ = parse_docstring(_docstring(name))
        summary = title.split(": ", 1)[-1].rstrip(".")
        cells = [
            f"[{method_label(name)}]({name}.md)",
            summary,
            "yes" if method.first_fraction is not None else "",
            "yes" if method.open_vocabulary else "no",
            method.selects_on,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def method_page(name: str) -> str:
    """A method's page: parts of the docstring, use, options, printed numbers."""
    title, parts = parse_docstring(_docstring(name))
    lines = [f"# {method_label(name)}", "", title, ""]
    for part in PARTS:
        lines += [f"## {part}", "", _sentence(parts.get(part, "nothing to say.")), ""]
    lines += ["## Use", "", "```shell", f"shotfit fit photos --method {name} --shots 4 --out model"]
    if get_method(name).first_fraction is not None:
        lines.append(f"shotfit fit photos --method 2sfs:{name} --shots 4 --out model")
    lines += [
        "```",
        "",
        "## Options",
        "",
        "As `-o NAME=VALUE`, for a task of 10 classes with 16 shots.",
        "",
    ]
    lines += ["| option | default | values |", "|---|---|---|"]
    lines += [
        f"| `{option['name']}` | `{option['default']}` | {escape(str(option['values']))} |"
        for option in describe(name)["options"]
    ]
    rows = [entry.name for entry in published_names().values() if entry.method == name] or [name]
    numbers = [line for row in [*rows, *(f"2sfs_{r}" for r in rows)] for line in printed_lines(row)]
    found = [*numbers, *elsewhere(name)]
    lines += ["", "## Published numbers", "", *(found or ["None were found."])]
    families = ", ".join(get_method(name).families)
    return "\n".join([*lines, "", "## Models", "", f"Works with {families}.", ""])


def _docstring(name: str) -> str:
    return importlib.import_module(f"shotfit.methods.{name}").__doc__ or ""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def command_page() -> str:
    """Every command with its arguments, options and examples."""
    root = typer.main.get_command(cli.app)
    lines = ["# Commands", "", "`shotfit COMMAND --help` prints the same.", ""]
    for words, command in _leaves(root, ()):
        lines += [
            f"## shotfit {' '.join(words)}",
            "",
            escape(" ".join((command.help or "").split())),
        ]
        lines += ["", "| option | what it does | default |", "|---|---|---|"]
        lines += [_row(parameter) for parameter in command.params if parameter.name != "help"]
        examples = (command.epilog or "").split("\n\n")[1:]
        lines += ["", "```shell", *examples, "```", ""]
    return "\n".join(lines)


def _leaves(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words, command
        return
    for name, one in inner.items():
        yield from _leaves(one, (*words, name))


def _row(parameter: click.Parameter) -> str:
    option = parameter.param_type_name == "option"
    words = [*parameter.opts, *parameter.secondary_opts] if option else []
    names, default = ", ".join(f"`{word}`" for word in words), parameter.default
    if default is True and words:
        default = words[0]  # of a switch
    told = default is not None and default is not False and not callable(default) and default != ()
    cells = [
        names or f"`{(parameter.metavar or parameter.name or '').upper()}`",
        escape(" ".join((getattr(parameter, "help", None) or "").split())),
        f"`{getattr(default, 'value', default)}`" if told else "",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Hands the pages to mkdocs."""
    import mkdocs_gen_files

    for path, text in pages().items():
        with mkdocs_gen_files.open(path, "w", encoding="utf-8") as file:
            file.write(text)
    for name, path in notebooks().items():
        text, pictures = notebook_page(path)
        with mkdocs_gen_files.open(f"notebooks/{name}.md", "w", encoding="utf-8") as file:
            file.write(text)
        for picture, content in pictures.items():
            with mkdocs_gen_files.open(f"notebooks/{picture}", "wb") as file:
                file.write(content)


if __name__ in ("__main__", "<run_path>"):
    main()
