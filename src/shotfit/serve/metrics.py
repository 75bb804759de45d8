"""What a server counts, as Prometheus reads it."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Counters of one server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "shotfit_requests", "Requests answered.", ["path", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "shotfit_request_seconds",
            "From a request to its answer.",
            ["path"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.images = Counter("shotfit_images", "Images classified.", registry=self.registry)
        self.batches = Histogram(
            "shotfit_batch_images", "Images of a batch.", buckets=SIZES, registry=self.registry
        )
        self.in_flight = Gauge(
            "shotfit_requests_in_flight", "Requests being answered.", registry=self.registry
        )
        self.version = Gauge(
            "shotfit_classes_version", "Version of the classes.", registry=self.registry
        )
        self.classes = Gauge("shotfit_classes", "Classes to choose among.", registry=self.registry)

    def text(self) -> bytes:
        """All of them, in Prometheus's text format."""
        return generate_latest(self.registry)
