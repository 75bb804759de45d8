"""Images from files, bytes, arrays and pictures: upright, RGB, and an error for what is broken."""

import hashlib
import io
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from shotfit.data.addresses import is_address, no_image_file
from shotfit.errors import DataError, UsageError
from shotfit.system.files import read_plain
from shotfit.system.heap import return_freed

# Pillow warns from here on and refuses twice as much; a photo of this many pixels is an attack.
MAX_PIXELS = 178_956_970
# A file of more is none of an image with so many pixels.
MAX_BYTES = 1 << 30
# Pixels of an image of which one at a time is opened, and of the strips that are converted.
LARGE, STRIP = 1 << 26, 1 << 20
BYTES_PER_PIXEL = 12
"""What opening an image takes at most, besides its file: 2.1 GB for the largest."""
# TIFF 6.0, section 8.
BITS_PER_SAMPLE = 258

FORMATS = ("AVIF", "BMP", "GIF", "HEIF", "JPEG", "MPO", "PNG", "PPM", "TIFF", "WEBP")
"""What is opened, by Pillow's names, whatever a file's ending says. Of the rest that Pillow knows,
some runs other programs: Ghostscript for a PostScript file, even one that is named .png."""

HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
"""How a HEIC file names itself, as phones write it."""

TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""How an image is made upright, by its EXIF orientation."""


class HashedFile:
    """A file that notes, when its image is opened, what it held then."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.content = ""
        """Sixteen hex digits of the SHA-256 of its bytes; empty as long as nothing was read."""

    def __str__(self) -> str:
        return self.path

    def read(self) -> bytes:
        """Its bytes.

        Raises:
            OSError: when it cannot be read.
        """
        content = read_plain(Path(self.path).expanduser(), MAX_BYTES)
        self.content = hashlib.sha256(content).hexdigest()[:16]
        return content


_one_at_a_time = threading.RLock()

ImageSource = (
    str | Path | HashedFile | bytes | Image.Image | np.ndarray | Callable[[], "ImageSource"]
)
"""Where pixels are: a file, a file's content, a picture, an array, or a function that gives one."""


def open_image(
    source: ImageSource, name: str | None = None, *, enough: int | None = None
) -> Image.Image:
    """An upright RGB image from a file, bytes, a PIL image or a uint8 array (height, width[, 3]).

    A function is called for any of these. An address on the web is not fetched.

    EXIF orientation is applied; where the EXIF is damaged, the image is taken as it lies, as
    viewers do. Transparency is laid over white, as transformers' image processors
    do. With `enough`, an image may come at the nearest integer fraction of its size whose short
    side has at least so many pixels; a JPEG is then decoded in a fraction of the time.

    Opening takes at most `BYTES_PER_PIXEL` of memory, for one of the `LARGE` images at a time.

    Raises:
        DataError: naming the file, when it is missing, unreadable, truncated, too large, not a
            file, or of none of the `FORMATS`.
        UsageError: for an object that is not an image.
    """
    with opened_image(source, name, enough=enough) as image:
        return image


@contextmanager
def opened_image(
    source: ImageSource, name: str | None = None, *, enough: int | None = None
) -> Iterator[Image.Image]:
    """`open_image` for who is done with the image at the end of the block: until then, no other of
    the `LARGE` ones is opened by another thread."""
    name = name or (
        str(source) if isinstance(source, str | Path | HashedFile) else "the given image"
    )
    if is_address(source):
        raise DataError(f"{name} is on the web: download it, or allow it with fetch_urls=True.")
    if callable(source):
        with opened_image(source(), name, enough=enough) as image:
            yield image
        return
    with _errors_about(name):
        image = _header(source, enough)
    pixels = image.width * image.height
    with _one_at_a_time if pixels > LARGE else nullcontext():
        if pixels > LARGE:
            return_freed()
        with _errors_about(name):
            image = _decoded(image, enough, owned=not isinstance(source, Image.Image | np.ndarray))
        yield image


@contextmanager
def _errors_about(name: str) -> Iterator[None]:
    """What goes wrong inside, in words that name the image."""
    try:
        yield
    except (UsageError, MemoryError):
        raise
    except DataError as error:
        raise DataError(f"{name} cannot be read: {error}.") from None
    except FileNotFoundError as error:
        raise DataError(no_image_file(name)) from error
    except UnidentifiedImageError as error:
        known = ", ".join(FORMATS)
        raise DataError(f"{name} is not an image that can be read ({known}).") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(f"{name} claims more than {MAX_PIXELS:,} pixels; refused.") from error
    except Exception as error:
        # On a damaged file Pillow's decoders raise whatever they run into.
        why = str(error) or type(error).__name__
        raise DataError(f"{name} cannot be read as an image: {why}.") from error


def _header(source: ImageSource, enough: int | None) -> Image.Image:
    """A picture whose size and format are known, and whose pixels need not be there."""
    if isinstance(source, Image.Image):
        image = source
        # Pictures that were opened elsewhere are decoded here.
        if image.format not in (None, *FORMATS):
            raise UnidentifiedImageError
    elif isinstance(source, np.ndarray):
        image = _from_array(source)
    elif isinstance(source, bytes):
        image = _opened(source)
    elif isinstance(source, str | Path):
        # Read whole: Pillow leaves a file open when decoding fails.
        image = _opened(read_plain(Path(source).expanduser(), MAX_BYTES))
    elif isinstance(source, HashedFile):
        image = _opened(source.read())
    else:
        raise UsageError(
            f"An image must be a path, bytes, a PIL image or an array, got {type(source).__name__}."
        )
    # Pillow only warns up to twice as many, and making an error of its warning would change
    # the filters of all threads.
    if image.width * image.height > MAX_PIXELS:
        raise Image.DecompressionBombError
    # A picture that somebody else holds must not change in their hands.
    if enough is not None and not isinstance(source, Image.Image):
        _draft(image, enough)
    return image


def _decoded(image: Image.Image, enough: int | None, *, owned: bool) -> Image.Image:
    """The picture upright and in RGB, as `open_image` gives it. One that is `owned` may be handed
    on as it is; of any other, nothing but pixels is left."""
    image.load()
    turn = _turn(image)
    made = _to_rgb(image, _declared_bits(image))
    if turn is not None:
        made = made.transpose(turn)
    elif made is image and not (owned and image.width * image.height > LARGE):
        made = image.copy()
    return made if enough is None else reduced(made, enough)


def check_header(path: Path) -> None:
    """Opens a file as an image without decoding it.

    Raises:
        DataError: naming the file, when it is missing, no image, or too large.
    """
    try:
        if path.exists() and not path.is_file():
            raise OSError("it is not a file")
        with path.open("rb") as file:
            Image.init()
            known = [name for name in FORMATS if name in Image.OPEN]
            with Image.open(file, formats=known) as image:
                pixels = image.width * image.height
    except FileNotFoundError as error:
        raise DataError(no_image_file(path)) from error
    except UnidentifiedImageError as error:
        raise DataError(
            f"{path} is not an image that can be read ({', '.join(FORMATS)})."
        ) from error
    except Exception as error:  # as in `open_image`
        why = str(error) or type(error).__name__
        raise DataError(f"{path} cannot be read as an image: {why}.") from error
    if pixels > MAX_PIXELS:
        raise DataError(f"{path} claims more than {MAX_PIXELS:,} pixels; refused.")


def pixels_of(content: bytes, name: str) -> int:
    """The pixels that an image file claims to have, read from its header.

    Raises:
        DataError: for bytes that are no image of the `FORMATS`.
    """
    try:
        with _opened(content) as image:
            return image.width * image.height
    except UnidentifiedImageError as error:
        raise DataError(
            f"{name} is not an image that can be read ({', '.join(FORMATS)})."
        ) from error
    except Exception as error:
        raise DataError(f"{name} claims what cannot be: {error}.") from error


def _opened(content: bytes) -> Image.Image:
    Image.init()
    if content[4:8] == b"ftyp":
        _prepare_for(content[8:32])
    return Image.open(io.BytesIO(content), formats=[name for name in FORMATS if name in Image.OPEN])


def _prepare_for(brands: bytes) -> None:
    """Makes ready what opens a file of the ISO base media format by its brands (ISO/IEC 23008-12).

    Raises:
        DataError: naming what has to be installed.
    """
    if b"avif" in brands or b"avis" in brands:
        if "AVIF" not in Image.OPEN:
            raise DataError("it is AVIF, which Pillow opens from version 11.3 on")
    elif "HEIF" not in Image.OPEN and any(brand in brands for brand in HEIF_BRANDS):
        try:
            import pillow_heif
        except ImportError:
            raise DataError("it is HEIC, which needs: pip install 'shotfit[heic]'") from None
        pillow_heif.register_heif_opener()


def _draft(image: Image.Image, enough: int) -> None:
    shrunk = enough / min(image.size)
    if shrunk < 1:
        # Of the sizes that the format offers (JPEG 1/2, 1/4 and 1/8), Pillow takes the smallest
        # that is not below this.
        image.draft(None, (math.ceil(image.width * shrunk), math.ceil(image.height * shrunk)))


def reduced(image: Image.Image, enough: int) -> Image.Image:
    """The nearest integer fraction of an image whose short side has at least so many pixels."""
    factor = min(image.size) // enough
    return image.reduce(factor) if factor > 1 else image


def _turn(image: Image.Image) -> Image.Transpose | None:
    """How the picture is made upright, as `ImageOps.exif_transpose` finds it. That one also writes
    the EXIF anew without the orientation, which fails for values that could be read."""
    try:
        return TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:
        return None


def _to_rgb(image: Image.Image, bits: int | None) -> Image.Image:
    """The picture in RGB, converted strip by strip: what lies between takes the memory of one."""
    if image.mode == "RGB" and image.info.get("transparency") is None:
        return image
    levels = _levels(image, bits) if image.mode.startswith("I") or image.mode == "F" else None
    if image.width * image.height <= STRIP:
        return _strip_to_rgb(image, levels)
    made = Image.new("RGB", image.size)
    for strip, top in _strips(image):
        made.paste(_strip_to_rgb(strip, levels), (0, top))
    return made


def _strips(image: Image.Image) -> Iterator[tuple[Image.Image, int]]:
    rows = max(1, STRIP // max(1, image.width))
    for top in range(0, image.height, rows):
        yield image.crop((0, top, image.width, min(image.height, top + rows))), top


def _strip_to_rgb(image: Image.Image, levels: Callable[[np.ndarray], np.ndarray] | None):
    if "A" in image.getbands() or image.info.get("transparency") is not None:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, image).convert("RGB")
    if levels is not None:
        return Image.fromarray(levels(np.asarray(image))).convert("RGB")
    return image.convert("RGB")


def _declared_bits(image: Image.Image) -> int | None:
    """The bits of a sample that a TIFF declares; None where nothing is said."""
    tags = getattr(image, "tag_v2", None)
    bits = None if tags is None else tags.get(BITS_PER_SAMPLE)
    return bits[0] if isinstance(bits, tuple) else bits


def _levels(image: Image.Image, bits: int | None) -> Callable[[np.ndarray], np.ndarray]:
    """How gray values with more than eight bits become uint8.

    Raises:
        ValueError: where their range is not known: a picture that is nearly black would come out.
    """
    ends = [(values.min(), values.max()) for values in (np.asarray(s) for s, _ in _strips(image))]
    low, high = np.min([low for low, _ in ends]), np.max([high for _, high in ends])
    if image.mode == "F":
        if not (low >= 0 and high <= 1):
            raise ValueError(
                f"its values are floating-point numbers from {low:g} to {high:g}, and black and "
                "white are not known; save it with 8 bits, or with values from 0 to 1"
            )
        return lambda values: (255 * values).round().astype(np.uint8)
    depth = bits if bits in (10, 12, 14) else 16
    if low < 0 or high >= 1 << depth:
        raise ValueError(
            f"its values go from {low} to {high}, and black and white are not known; save it with "
            "8 or 16 bits"
        )
    if depth == 16 and 0 < high < 4096:
        raise ValueError(
            f"its 16-bit values end at {high}, as those of 12 bits or fewer do, and would be "
            "nearly black; save it with 8 bits"
        )
    return lambda values: (values.astype(np.int64) >> (depth - 8)).astype(np.uint8)


def _from_array(array: np.ndarray) -> Image.Image:
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    gray = array.ndim == 2
    color = array.ndim == 3 and array.shape[2] in (3, 4)
    if array.dtype != np.uint8 or not (gray or color):
        raise UsageError(
            "An image array must be uint8 of shape (height, width) or (height, width, 3), "
            f"got {array.dtype} of shape {array.shape}." + _remedy(array)
        )
    return Image.fromarray(array)


def _remedy(array: np.ndarray) -> str:
    if array.ndim == 3 and array.shape[0] in (1, 3):
        return " It has its channels first: array.transpose(1, 2, 0)."
    if array.dtype.kind == "f":
        return " Of values from 0 to 1: (255 * array).round().astype('uint8')."
    return ""
