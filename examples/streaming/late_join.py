"""A join with three lookups, in which orders wait for prices that come late.

Reads lines of two kinds as they arrive in a folder: orders such as
``{"shop": "north", "order": 7, "item": "tea", "customer": "ann", "currency": "USD"}``, and facts
such as ``{"shop": "north", "kind": "price", "of": "tea", "value": 4}``, where the kind is ``price``
(of an item), ``discount`` (of a customer) or ``rate`` (of a currency). Each order is looked up in
three maps. Without a price it waits, for ``--wait`` seconds of event time; then it is written to
``--unpriced``.

    python examples/streaming/late_join.py --input='/tmp/shop/*.json' --output=/tmp/sold/out \
        --unpriced=/tmp/unpriced/out --runner=SparkPortableRunner --checkpoint_dir=/tmp/late_join
"""

import argparse
import json
import sys
from typing import Any

import apache_beam as beam
from apache_beam.coders import FloatCoder, StrUtf8Coder, VarIntCoder
from apache_beam.io import fileio
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.window import FixedWindows

from beam_spark_runner.transforms import (
    DeclarativeKeyedProcess,
    EventTimer,
    KeyedProcess,
    MapState,
)

Fields = dict[str, Any]


class LateJoin(KeyedProcess):
    """Joins the orders of a shop, the first input, with its facts, the second one."""

    price = MapState("price", StrUtf8Coder(), FloatCoder())
    discount = MapState("discount", StrUtf8Coder(), FloatCoder())
    rate = MapState("rate", StrUtf8Coder(), FloatCoder())
    waiting = MapState("waiting", VarIntCoder(), StrUtf8Coder())  # orders as JSON, by number
    too_late = EventTimer("too late")

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s

    def _look_up(self, ctx: Any, order: Fields) -> Any:
        """Return a future of the price, discount and rate of an order."""
        return ctx.combine_all(
            [
                self.price.get(order["item"]),
                self.discount.get(order["customer"], 0.0),
                self.rate.get(order["currency"], 1.0),
            ]
        )

    def declare_process1(self, ctx: Any) -> Any:
        def emit(facts: list[float]) -> None:
            ctx.output(priced(ctx.value, facts))

        def wait(_: list[float | None]) -> Any:
            self.too_late.set(ctx.timestamp + self._wait_s, tag=str(ctx.value["order"]))
            return self.waiting.put(ctx.value["order"], json.dumps(ctx.value))

        return (
            ctx.declare_chain(lambda _: self._look_up(ctx, ctx.value))
            .then_conditionally_compose(
                lambda facts: facts[0] is not None,
                lambda facts: ctx.completed(facts).then_accept(emit),
                wait,
            )
            .with_name("has a price")
            .finish()
        )

    def declare_process2(self, ctx: Any) -> Any:
        def store(fact: Fields) -> Any:
            return getattr(self, fact["kind"]).put(fact["of"], float(fact["value"]))

        def sell(order: Fields) -> Any:
            self.too_late.clear(str(order["order"]))
            self.waiting.remove(order["order"])
            found = self._look_up(ctx, order)
            return found.then_accept(lambda facts: ctx.output(priced(order, facts)))

        def sell_all(orders: Any) -> Any:
            ready = [json.loads(text) for _, text in orders]
            return ctx.combine_all(
                [sell(each) for each in ready if each["item"] == ctx.value["of"]]
            )

        is_price = ctx.declare("is a price", lambda _: ctx.value["kind"] == "price")
        sell_those = ctx.declare("sell those that wait", sell_all)
        read = ctx.declare("read", lambda _: self.waiting.items().then_compose(sell_those))
        return lambda _: store(ctx.value).then_conditionally_compose(is_price, read)

    def declare_on_event_time(self, ctx: Any) -> Any:
        give_up = ctx.declare("give up", lambda order: ctx.output(json.loads(order), "unpriced"))

        def fired(timer: Any) -> Any:
            number = int(timer.tag)
            order = self.waiting.get(number)
            self.waiting.remove(number)
            return order.then_accept(give_up)

        return fired


def priced(order: Fields, facts: list[float]) -> Fields:
    price, discount, rate = facts
    return {**order, "price": round(price * (1 - discount) * rate, 2)}


def start(arguments: list[str]) -> Any:
    """Start the pipeline and return its result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", required=True, help="pattern of the files that are read")
    parser.add_argument("--output", required=True, help="beginning of the names of files")
    parser.add_argument("--unpriced", required=True, help="the same, for orders without a price")
    parser.add_argument("--wait", type=float, default=3600, help="seconds")
    parser.add_argument("--window", type=float, default=60, help="of the files; seconds")
    mine, rest = parser.parse_known_args(arguments)
    pipeline = beam.Pipeline(options=PipelineOptions(rest))
    lines = (
        pipeline
        | fileio.MatchContinuously(mine.input, interval=1)
        | fileio.ReadMatches()
        | "Lines" >> beam.FlatMap(lambda file: file.read_utf8().splitlines())
        | "Parse" >> beam.Map(json.loads)
        | "By shop"
        >> beam.Map(lambda line: (line["shop"], line)).with_output_types(tuple[str, Fields])
    )
    orders = lines | "Orders" >> beam.Filter(lambda pair: "order" in pair[1])
    facts = lines | "Facts" >> beam.Filter(lambda pair: "kind" in pair[1])
    join = DeclarativeKeyedProcess(LateJoin(mine.wait)).with_outputs("unpriced", main="sold")
    sold, unpriced = (orders, facts) | join
    for label, records, path in (("sold", sold, mine.output), ("left", unpriced, mine.unpriced)):
        _ = (
            records
            | f"Text of {label}" >> beam.Map(json.dumps)
            | f"Windows of {label}" >> beam.WindowInto(FixedWindows(mine.window))
            | f"Write {label}" >> beam.io.WriteToText(path, file_name_suffix=".json", num_shards=1)
        )
    return pipeline.run()


if __name__ == "__main__":
    start(sys.argv[1:]).wait_until_finish()
