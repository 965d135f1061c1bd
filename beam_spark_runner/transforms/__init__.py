"""Transforms that Beam has no word for. Public; they need Beam alone, and no Spark."""

from beam_spark_runner.transforms.full_window import FullWindowPartition, Order

__all__ = ["FullWindowPartition", "Order"]
