"""Images on the web, for who asks for them."""

from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    Request,
)

from shotfit import __version__
from shotfit.errors import DataError

MAX_BYTES = 100 << 20
SECONDS = 30.0
# Not urllib's usual handlers, which also read local files and FTP.
HANDLERS = (
    HTTPHandler,
    HTTPSHandler,
    HTTPRedirectHandler,
    HTTPErrorProcessor,
    HTTPDefaultErrorHandler,
)


def fetch(address: str) -> bytes:
    """The content of a file on the web.

    Raises:
        DataError: when it cannot be had, or is larger than an image should be.
    """
    opener = OpenerDirector()
    for handler in HANDLERS:
        opener.add_handler(handler())
    request = Request(address, headers={"User-Agent": f"shotfit/{__version__}"})
    try:
        answer = opener.open(request, timeout=SECONDS)
        if answer is None:
            raise OSError("it leads to something that is not on the web")
        with answer:
            content = answer.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise DataError(f"{address} cannot be fetched: {error}.") from error
    if len(content) > MAX_BYTES:
        raise DataError(f"{address} is larger than {MAX_BYTES >> 20} MB; refused.")
    return content
