"""Runs the notebooks and keeps what they print and draw: `make notebooks`.

    python pages/notebook_pages.py [NAME ...]    # all of them, or those named

Also makes a page of the site of each. What libraries say on standard error is left out, and so is
what only a run could tell (times, ids of processes).
"""

import argparse
import base64
import sys
import tempfile
from pathlib import Path

import nbformat

FOLDER = Path(__file__).parent.parent / "notebooks"
PATIENCE = 1800
"""Seconds that a cell may take."""


def notebooks() -> dict[str, Path]:
    """Every notebook by its name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.ipynb"))}


def run(path: Path) -> nbformat.NotebookNode:
    """A notebook as it is after a run from top to bottom, in a temporary folder.

    Raises:
        CellExecutionError: from a cell that fails.
    """
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        place = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=PATIENCE, kernel_name="python3", resources=place).execute()
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def page(path: Path) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and its pictures by the names that the text has for them."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source.replace("](../docs/", "](../"))
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            if "text" in output:
                parts.append(f"```text\n{output.text}```")
            if drawn := output.get("data", {}).get("image/png"):
                name = f"pictures/{path.stem}-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode(drawn)
                parts.append(f"![Drawn by the code above]({name})")
    return "\n\n".join([*parts, ""]), pictures


def main() -> int:
    """Parses the command line and writes the notebooks anew."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="all, if none is named")
    known = notebooks()
    for name in parser.parse_args().names or known:
        nbformat.write(run(known[name]), known[name])
        print(f"Ran {known[name].name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
