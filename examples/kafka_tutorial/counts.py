"""Counts the orders of each country in windows of ten seconds, from topic to topic."""

import json
import os
import sys

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.window import FixedWindows

from beam_spark_runner.transforms.kafka import CreateTime, ExactlyOnce, ReadFromKafka, WriteToKafka

SERVERS = {"bootstrap.servers": os.environ.get("KAFKA_SERVERS", "localhost:9092")}

with beam.Pipeline(options=PipelineOptions(sys.argv[1:])) as pipeline:
    _ = (
        pipeline
        | ReadFromKafka(SERVERS, ["orders"], start="earliest", timestamp_policy=CreateTime(2))
        | "Country" >> beam.MapTuple(lambda key, value: json.loads(value)["country"])
        | beam.WindowInto(FixedWindows(10))
        | beam.combiners.Count.PerElement()
        | "Encode" >> beam.MapTuple(lambda country, count: (country.encode(), b"%d" % count))
        | WriteToKafka(SERVERS, "counts", exactly_once=ExactlyOnce(2, "tutorial"))
    )
