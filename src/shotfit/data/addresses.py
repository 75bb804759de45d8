"""Addresses on the web, told from files."""


def is_address(source: object) -> bool:
    """Whether it is an address on the web."""
    return isinstance(source, str) and source.startswith(("http://", "https://"))


def no_image_file(where: object) -> str:
    """What is said of an image file that is not there."""
    return f"There is no image file {where}."
