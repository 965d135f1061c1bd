"""Transforms that read and write Spark tables."""

from beam_spark_runner.transforms.spark_tables import batches
from beam_spark_runner.transforms.spark_tables.read import ReadFromSpark
from beam_spark_runner.transforms.spark_tables.write import SparkWriteResult, WriteToSpark

# With the converter registered, Beam accepts RecordBatches as the batches of batch DoFns.
batches.register()

__all__ = ["ReadFromSpark", "SparkWriteResult", "WriteToSpark"]
