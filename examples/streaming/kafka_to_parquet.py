"""From Kafka to Parquet: the records of a topic in files, one for each window of event time.

The values are JSON such as ``{"id": 7, "amount": 10.5}``. Each record is in the files exactly once,
even if processes are killed meanwhile.

    python examples/streaming/kafka_to_parquet.py --bootstrap_servers=localhost:9092 \
        --topic=orders --output=/tmp/orders/part --runner=SparkPortableRunner \
        --checkpoint_dir=/tmp/kafka-to-parquet
"""

import argparse
import json
import sys
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.window import FixedWindows

from beam_spark_runner.transforms import ReadFromKafka
from beam_spark_runner.transforms.kafka import CreateTime

SCHEMA = pa.schema([("id", pa.int64()), ("amount", pa.float64())])


def start(arguments: list[str]) -> Any:
    """Start the pipeline and return its result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap_servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--output", required=True, help="beginning of the names of files")
    parser.add_argument("--window", type=float, default=60, help="seconds")
    parser.add_argument("--max_delay", type=float, default=5, help="of records; seconds")
    mine, rest = parser.parse_known_args(arguments)
    pipeline = beam.Pipeline(options=PipelineOptions(rest))
    _ = (
        pipeline
        | ReadFromKafka(
            {"bootstrap.servers": mine.bootstrap_servers},
            [mine.topic],
            start="earliest",
            timestamp_policy=CreateTime(mine.max_delay),
        )
        | "Parse" >> beam.MapTuple(lambda _, value: json.loads(value))
        | beam.WindowInto(FixedWindows(mine.window))
        | beam.io.WriteToParquet(mine.output, SCHEMA, file_name_suffix=".parquet", num_shards=1)
    )
    return pipeline.run()


if __name__ == "__main__":
    start(sys.argv[1:]).wait_until_finish()
