"""Tables of a benchmark in a page of the documentation, between two marks."""

from pathlib import Path


def put(page: Path, mark: str, text: str) -> None:
    """Replaces what stands between `<!-- mark -->` and `<!-- /mark -->`.

    Raises:
        ValueError: when the page has no such marks; it is left as it is.
    """
    start, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    before, found, rest = page.read_text(encoding="utf-8").partition(start)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{page} lacks the marks {start} and {end}")
    page.write_text(f"{before}{start}\n\n{text}\n\n{end}{after}", encoding="utf-8")
