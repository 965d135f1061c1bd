"""New ids: which ids each tenant has used for the first time today.

Reads lines such as ``{"tenant": "acme", "id": "e7"}`` as they arrive in a folder. A tenant may have
millions of ids: each event reads and writes one entry of a map. Each day (UTC, event time) is a
window with a separate map, so that all ids count as new again.

    python examples/streaming/new_ids.py --input='/tmp/events/*.json' --output=/tmp/new/out \
        --runner=SparkPortableRunner --checkpoint_dir=/tmp/new_ids
"""

import argparse
import json
import sys
from typing import Any

import apache_beam as beam
from apache_beam.coders import StrUtf8Coder, VarIntCoder
from apache_beam.io import fileio
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.window import FixedWindows

from beam_spark_runner.transforms import (
    DeclarativeKeyedProcess,
    KeyedProcess,
    MapState,
    ValueState,
)

DAY_S = 24 * 3600


class NewIds(KeyedProcess):
    """Emits (tenant, id, number of the id today) for each new id. Elements: (tenant, id)."""

    seen = MapState("seen", StrUtf8Coder(), VarIntCoder())
    count = ValueState("count", VarIntCoder())

    def declare_process(self, ctx: Any) -> Any:
        number = ctx.declare_variable(VarIntCoder(), "number", lambda: 0)

        def remember(count: int | None) -> Any:
            number.set((count or 0) + 1)
            self.count.write(number.get())
            return self.seen.put(ctx.value, number.get())

        store = ctx.declare("remember", remember)
        emit = ctx.declare("emit", lambda _: ctx.output((ctx.key, ctx.value, number.get())))
        is_new = ctx.declare("is new", lambda known: not known)
        read = ctx.declare(
            "read", lambda _: self.count.read().then_compose(store).then_accept(emit)
        )
        return lambda _: self.seen.contains(ctx.value).then_conditionally_compose(is_new, read)


def start(arguments: list[str]) -> Any:
    """Start the pipeline and return its result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", required=True, help="pattern of the files that are read")
    parser.add_argument("--output", required=True, help="beginning of the names of files")
    parser.add_argument("--window", type=float, default=60, help="of the files; seconds")
    mine, rest = parser.parse_known_args(arguments)
    pipeline = beam.Pipeline(options=PipelineOptions(rest))
    _ = (
        pipeline
        | fileio.MatchContinuously(mine.input, interval=1)
        | fileio.ReadMatches()
        | "Lines" >> beam.FlatMap(lambda file: file.read_utf8().splitlines())
        | "Parse" >> beam.Map(json.loads)
        | "By tenant"
        >> beam.Map(lambda event: (event["tenant"], event["id"])).with_output_types(tuple[str, str])
        | "By day" >> beam.WindowInto(FixedWindows(DAY_S))
        | DeclarativeKeyedProcess(NewIds()).with_output_types(tuple[str, str, int])
        | "Text" >> beam.MapTuple(lambda tenant, id_, number: f"{tenant} {id_} {number}")
        | "Files" >> beam.WindowInto(FixedWindows(mine.window))
        | beam.io.WriteToText(mine.output, file_name_suffix=".txt", num_shards=1)
    )
    return pipeline.run()


if __name__ == "__main__":
    start(sys.argv[1:]).wait_until_finish()
