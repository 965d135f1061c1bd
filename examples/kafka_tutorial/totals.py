"""Adds up the counts that counts.py has written so far, in a batch pipeline in this process."""

import os

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner.transforms.kafka import ReadFromKafka

SERVERS = {"bootstrap.servers": os.environ.get("KAFKA_SERVERS", "localhost:9092")}

options = PipelineOptions(
    [], runner="SparkPortableRunner", spark_master_url="in-process", progress="off"
)
with beam.Pipeline(options=options) as pipeline:
    counts = (
        pipeline
        | ReadFromKafka(SERVERS, ["counts"], start="earliest", stop="latest")
        | "Decode" >> beam.MapTuple(lambda country, count: (country.decode(), int(count)))
    )
    all_counts = counts | "All" >> beam.Map(lambda pair: ("total", pair[1]))
    _ = (counts, all_counts) | beam.Flatten() | beam.CombinePerKey(sum) | beam.Map(print)
