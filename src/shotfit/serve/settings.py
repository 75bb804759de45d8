"""What a server allows, as a value."""

from dataclasses import dataclass

from shotfit.errors import UsageError


@dataclass(frozen=True)
class Settings:
    """Limits of a server and how it batches."""

    token: str | None = None
    """What changes of classes need as a bearer token; without one they are refused."""
    batch_size: int = 16
    """Images at once through the model."""
    batch_delay: float = 0.005
    """Seconds that the first image of a batch waits for others, at most."""
    max_bytes: int = 20_000_000
    """Bytes of a request, all images together."""
    max_pixels: int = 50_000_000
    """Pixels of an image."""
    max_images: int = 32
    """Images of a request."""
    max_seconds: float = 30.0
    """Seconds until a request is given up."""
    max_requests: int = 256
    """Requests that are answered at once; others are sent away."""
    allow_urls: bool = False
    """Whether images are fetched from addresses that a request names."""
    save: bool = False
    """Whether changes of classes are written into the folder of the export."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            small = name == "batch_delay"
            if type(value) in (int, float) and (value < 0 or (value == 0 and not small)):
                raise UsageError(f"{name} must be above 0, got {value}.")
        if self.token is not None and not self.token.strip():
            raise UsageError("The token is empty, so that anybody could guess it.")
