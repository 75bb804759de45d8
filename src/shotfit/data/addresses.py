"""Addresses on the web, told from files."""


def is_address(source: object) -> bool:
    """Whether it is an address on the web."""
    return isinstance(source, str) and source.startswith(("http://", "https://"))
