"""Transforms that Beam has no word for, and users of Spark need.

Public. They import without PySpark, so that any SDK container can run them.
"""

from beam_spark_runner.transforms.full_window import FullWindowPartition, Order
from beam_spark_runner.transforms.kafka import ReadFromKafka, WriteToKafka
from beam_spark_runner.transforms.spark_tables import ReadFromSpark, SparkWriteResult, WriteToSpark

__all__ = [
    "FullWindowPartition",
    "Order",
    "ReadFromKafka",
    "ReadFromSpark",
    "SparkWriteResult",
    "WriteToKafka",
    "WriteToSpark",
]
