"""The machine's own peak, measured in the run that is held against it."""

from speed.measuring import Settings


def matmul_rate(settings: Settings) -> float:
    """The best rate of a large matrix product, operations a second."""
    sizes = [[2048] * 3, [4096] * 3, [32 * 197, 768, 3072]]
    if settings.device != "cpu":
        sizes = [[8192] * 3, [16384, 8192, 8192]]
    if settings.quick:
        sizes = [[256] * 3]
    with settings.open("ours", "matmul", sizes=sizes) as job:
        return max(job.measure(1)["value"] for _ in range(max(2, settings.rounds)))
