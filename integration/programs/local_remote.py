"""A pipeline in a session of ``remote("local[2]")``, which is usable afterwards."""

import apache_beam as beam
from apache_beam.testing.util import assert_that, equal_to
from pyspark.sql import SparkSession

from beam_spark_runner import SparkPortableRunner

spark = SparkSession.builder.remote("local[2]").getOrCreate()
with beam.Pipeline(runner=SparkPortableRunner()) as pipeline:
    counts = pipeline | beam.Create(["a", "b", "a"]) | beam.combiners.Count.PerElement()
    assert_that(counts, equal_to([("a", 2), ("b", 1)]))
print(type(spark).__module__)
print(spark.range(3).count(), "rows")
