"""Blocks of eight lines that stand in two places of the code: one idea that exists twice.

    python checks/duplicates.py    # exits with 1 and says where, when there are any

Lines are compared without indentation; imports, docstrings, comments, blank lines, and lines of
brackets alone do not count. (pylint's check compares every pair of files, a minute of work here;
this one takes a second.)
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

FOLDERS = ("src", "tests", "benchmarks", "tools", "checks", "pages")
BLOCK = 8
Line = tuple[Path, int, str]
"""A line that counts: its file, its number from 1, and its text without white space around it."""


def main(root: Path = Path(".")) -> int:
    """Prints every repeated block; the number of them."""
    files = sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py"))
    found = duplicates(files)
    for places in found:
        print(" = ".join(f"{path}:{first}-{last}" for path, first, last in places))
    if found:
        print(
            f"{len(found)} blocks of {BLOCK} lines or more stand in two places: make one of them."
        )
    return len(found)


def duplicates(files: Sequence[Path]) -> list[list[tuple[Path, int, int]]]:
    """Every repeated block, as long as it gets: the places (file, first and last line) it has."""
    lines = {path: list(lines_of(path)) for path in files}
    windows: dict[tuple[str, ...], list[tuple[Path, int]]] = defaultdict(list)
    for path, counted in lines.items():
        for start in range(len(counted) - BLOCK + 1):
            text = tuple(line for _, _, line in counted[start : start + BLOCK])
            windows[text].append((path, start))
    found: list[list[tuple[Path, int, int]]] = []
    covered: set[tuple[Path, int]] = set()
    for places in windows.values():
        if len(places) < 2 or all(place in covered for place in places):
            continue
        length = BLOCK
        while _same(lines, [(path, start + length) for path, start in places]):
            length += 1
        covered |= {(path, start + n) for path, start in places for n in range(length - BLOCK + 1)}
        found.append(
            [
                (path, lines[path][start][1], lines[path][start + length - 1][1])
                for path, start in places
            ]
        )
    return found


def lines_of(path: Path) -> Iterator[Line]:
    """The lines of a file that count."""
    source = path.read_text(encoding="utf-8")
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Expr | ast.Import | ast.ImportFrom):
            continue
        if not isinstance(node, ast.Expr) or isinstance(node.value, ast.Constant):
            left_out |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for number, line in enumerate(source.splitlines(), start=1):
        text = line.strip()
        if number not in left_out and not text.startswith("#") and text.strip("()[]{},:"):
            yield path, number, text


def _same(lines: dict[Path, list[Line]], places: Sequence[tuple[Path, int]]) -> bool:
    """Whether the same text stands in all places."""
    if any(place >= len(lines[path]) for path, place in places):
        return False
    return len({lines[path][place][2] for path, place in places}) == 1


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
