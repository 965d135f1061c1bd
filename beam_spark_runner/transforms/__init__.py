"""Public transforms, for users of Spark, that Beam itself does not have.

They do not import PySpark, so that SDK harnesses without it can run them.
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
