"""Spark tables in and out of a pipeline."""

from beam_spark_runner.transforms.spark_tables import batches
from beam_spark_runner.transforms.spark_tables.read import ReadFromSpark
from beam_spark_runner.transforms.spark_tables.write import SparkWriteResult, WriteToSpark

# Where batches are, Beam finds out how they are converted.
batches.register()

__all__ = ["ReadFromSpark", "SparkWriteResult", "WriteToSpark"]
