"""The eleven benchmark datasets of the paper, by name, as CoOp lays them out."""

from shotfit.data.benchmark.reading import load

__all__ = ["load"]
