"""The `shotfit` command: finds its sub-commands, and turns errors into messages and exit codes."""

import errno
import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from shotfit import __version__
from shotfit.apps import commands
from shotfit.errors import DataError, UsageError
from shotfit.system.interrupts import Terminated
from shotfit.system.terminal import printable

OF_THE_SYSTEM = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO),
    *(errno.ENAMETOOLONG, errno.EMFILE, errno.ENFILE, errno.ELOOP, errno.ENOTDIR),
}
"""What a disk, its rights and its limits answer: for the user to mend, wherever it is met."""

app = typer.Typer(
    name="shotfit",
    help="Few-shot image classifiers from CLIP, in two stages.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"shotfit {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Few-shot image classifiers from CLIP, in two stages."""


def _register() -> None:
    for info in pkgutil.iter_modules(commands.__path__):
        module = importlib.import_module(f"{commands.__name__}.{info.name}")
        name = info.name.replace("_", "-")
        examples = getattr(module, "EXAMPLES", ())
        group = getattr(module, "app", None)
        if isinstance(group, typer.Typer):
            for command in group.registered_commands:
                words = (
                    f"shotfit {name} {command.name or getattr(command.callback, '__name__', '')} "
                )
                command.epilog = _epilog([line for line in examples if line.startswith(words)])
            app.add_typer(group, name=name)
        else:
            kind = getattr(module, "command_class", None)
            app.command(name, cls=kind, epilog=_epilog(examples))(getattr(module, info.name))


def _epilog(examples: Sequence[str]) -> str:
    """The end of a command's help. A blank line between the examples, since within a paragraph line
    breaks are spaces."""
    return "\n\n".join(["Examples:", *examples])


_register()


def main() -> None:
    """Runs the command line. Exit code 0 ok, 1 failure, 2 usage, 3 data, 130 interrupted,
    143 ended by SIGTERM."""
    try:
        app()
    except (UsageError, DataError) as error:
        _say(str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        _say("Interrupted.")
        sys.exit(130)
    except Terminated as end:
        _say("Ended by SIGTERM.")
        sys.exit(end.code)
    except Exception as error:
        if os.environ.get("SHOTFIT_DEBUG"):
            raise
        if isinstance(error, OSError) and error.errno in OF_THE_SYSTEM:
            place = f"{error.filename}: " if error.filename else ""
            _say(f"{place}{error.strerror}.")
            sys.exit(DataError.exit_code)
        _say(f"{type(error).__name__}: {error} (SHOTFIT_DEBUG=1 shows where)")
        sys.exit(1)


def _say(message: str) -> None:
    print(printable(f"shotfit: {message}"), file=sys.stderr)
