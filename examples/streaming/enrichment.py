"""Enrichment by a slowly changing side input: amounts converted to one currency.

Reads orders such as ``{"id": 7, "amount": 10.0, "currency": "USD"}`` as they arrive in a folder.
The rates, a JSON object such as ``{"USD": 0.9}``, are read again every ``--refresh`` seconds: a
side input whose latest pane is used.

    python examples/streaming/enrichment.py --input='/tmp/orders/*.json' --rates=/tmp/rates.json \
        --output=/tmp/enriched/out --runner=SparkPortableRunner --checkpoint_dir=/tmp/enrichment
"""

import argparse
import json
import sys
from typing import Any

import apache_beam as beam
from apache_beam.io import fileio
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly
from apache_beam.transforms.window import FixedWindows, GlobalWindows


def read_rates(_: object, path: str) -> dict[str, float]:
    with FileSystems.open(path) as file:
        rates: dict[str, float] = json.loads(file.read())
        return rates


def enrich(order: dict[str, Any], rates: dict[str, float]) -> dict[str, Any]:
    return {**order, "value": round(order["amount"] * rates[order["currency"]], 2)}


def start(arguments: list[str]) -> Any:
    """Start the pipeline and return its result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", required=True, help="pattern of the files that are read")
    parser.add_argument("--rates", required=True, help="JSON file: currency to rate")
    parser.add_argument("--refresh", type=float, default=60, help="seconds")
    parser.add_argument("--output", required=True, help="beginning of the names of files")
    parser.add_argument("--window", type=float, default=60, help="of the files; seconds")
    mine, rest = parser.parse_known_args(arguments)
    pipeline = beam.Pipeline(options=PipelineOptions(rest))
    rates = (
        pipeline
        | PeriodicImpulse(fire_interval=mine.refresh)
        | "Read rates" >> beam.Map(read_rates, mine.rates)
        | "Latest"
        >> beam.WindowInto(
            GlobalWindows(),
            trigger=Repeatedly(AfterCount(1)),
            accumulation_mode=AccumulationMode.DISCARDING,
        )
        # One pane may have the rates of several reads; a singleton needs one.
        | beam.combiners.Latest.Globally().without_defaults()
    )
    _ = (
        pipeline
        | fileio.MatchContinuously(mine.input, interval=1)
        | fileio.ReadMatches()
        | "Lines" >> beam.FlatMap(lambda file: file.read_utf8().splitlines())
        | "Parse" >> beam.Map(json.loads)
        | beam.WindowInto(FixedWindows(mine.window))
        | "Enrich" >> beam.Map(enrich, beam.pvalue.AsSingleton(rates))
        | "Text" >> beam.Map(json.dumps)
        | beam.io.WriteToText(mine.output, file_name_suffix=".json", num_shards=1)
    )
    return pipeline.run()


if __name__ == "__main__":
    start(sys.argv[1:]).wait_until_finish()
