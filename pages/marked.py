"""Generated parts of a page, between two marks."""


def put(text: str, mark: str, content: str) -> str:
    """`text` with what stands between two marks replaced.

    Raises:
        ValueError: when the marks are not there.
    """
    start, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    before, rest = text.split(start)
    return f"{before}{start}\n{content}\n{end}{rest.split(end)[1]}"
