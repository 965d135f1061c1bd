"""Pipelines whose coders no SDK makes: shared, cyclic, deep, wide and dangling ones.

As a program, it compiles pipelines of the seeds FIRST to LAST, and prints each seed before: if one
never ends, whoever waits for the program knows which.
"""

import functools
import random
import sys
from collections.abc import Callable
from typing import Any

import apache_beam as beam
from apache_beam.portability.api import beam_runner_api_pb2 as pb
from apache_beam.portability.api import schema_pb2
from apache_beam.transforms.environments import ProcessEnvironment
from apache_beam.transforms.window import FixedWindows

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import PipelineError
from beam_spark_runner.plan.compatibility import stage_places
from beam_spark_runner.portable.descriptor import describe
from beam_spark_runner.portable.environment_facts import has_maps_in_bags
from beam_spark_runner.portable.payloads import forms_of
from tests.compiled import compile_pipeline
from tests.stateful import Keeps

KINDS = (
    urns.CODER_BYTES,
    urns.CODER_KV,
    urns.CODER_ITERABLE,
    urns.CODER_LENGTH_PREFIX,
    urns.CODER_STATE_BACKED_ITERABLE,
    urns.CODER_WINDOWED_VALUE,
    "beam:coder:nullable:v1",
    "beam:coder:tuple:v1",
    "beam:coder:varint:v1",
    "beam:coder:pickled_python:v1",
    "nobody:knows:it:v1",
)
PARTS = {  # of those that have a fixed number
    urns.CODER_KV: 2,
    urns.CODER_ITERABLE: 1,
    urns.CODER_LENGTH_PREFIX: 1,
    urns.CODER_STATE_BACKED_ITERABLE: 1,
}
Names = list[str]


class Coders:
    """Adds coders to a pipeline, under new ids."""

    def __init__(self, proto: pb.Pipeline) -> None:
        self.of = proto.components.coders
        self.ids: Names = []

    def add(self, urn: str, parts: Names, payload: bytes = b"", id_: str | None = None) -> str:
        id_ = f"odd{len(self.ids)}" if id_ is None else id_
        spec = pb.FunctionSpec(urn=urn, payload=payload)
        self.of[id_].CopyFrom(pb.Coder(spec=spec, component_coder_ids=parts))
        self.ids.append(id_)
        return id_

    def chain(self, urn: str, length: int, width: int, part: str | None = None) -> str:
        """Add coders each of which has the one before as its ``width`` parts."""
        id_ = part or self.add(urns.CODER_BYTES, [])
        for _ in range(length):
            id_ = self.add(urn, [id_] * width)
        return id_

    def row(self, depth: int) -> str:
        """Add the coder of rows in rows."""
        schema = schema_pb2.Schema(fields=[schema_pb2.Field(name="x")])
        schema.fields[0].type.atomic_type = schema_pb2.INT64
        for number in range(depth):
            outer = schema_pb2.Schema(id=f"s{number}", fields=[schema_pb2.Field(name="y")])
            outer.fields[0].type.row_type.schema.CopyFrom(schema)
            schema = outer
        return self.add(urns.CODER_ROW, [], schema.SerializeToString())


def shared(coders: Coders, random_: random.Random) -> str:
    urn, width = random_.choice([(urns.CODER_KV, 2), ("nobody:knows:it:v1", random_.randint(2, 5))])
    return coders.chain(urn, random_.choice([3, 8, 24, 40, 3_000]), width)


def deep(coders: Coders, random_: random.Random) -> str:
    urn = random_.choice([urns.CODER_ITERABLE, urns.CODER_LENGTH_PREFIX, "nobody:knows:it:v1"])
    return coders.chain(urn, random_.choice([90, 99, 100, 400, 20_000]), 1)


def wide(coders: Coders, random_: random.Random) -> str:
    part = coders.chain(urns.CODER_KV, random_.choice([0, 3]), 2)
    return coders.add(random_.choice(KINDS), [part] * random_.choice([3, 400, 20_000]))


def cyclic(coders: Coders, random_: random.Random) -> str:
    last = f"odd{len(coders.ids)}"
    coders.add(urns.CODER_BYTES, [])
    first = coders.chain(random_.choice(KINDS), random_.choice([0, 1, 30]), 1, last)
    coders.add(random_.choice(KINDS), [first] * random_.randint(1, 3), id_=last)
    return first


def dangling(coders: Coders, random_: random.Random) -> str:
    return coders.add(random_.choice(KINDS), ["nowhere"] * random_.randint(1, 2))


def rows(coders: Coders, random_: random.Random) -> str:
    return coders.row(random_.choice([1, 3, 12, 20]))


def mixed(coders: Coders, random_: random.Random) -> str:
    known = [coders.add(urns.CODER_BYTES, [])]
    for _ in range(random_.randint(1, 60)):
        kind = random_.choice(KINDS)
        parts = random_.choices(known[-4:], k=PARTS.get(kind, random_.randint(0, 3)))
        known.append(coders.add(kind, parts))
    return known[-1]


def small(coders: Coders, random_: random.Random) -> str:
    return coders.chain(urns.CODER_KV, random_.randint(1, 8), 2)


Shapes = tuple[Callable[[Coders, random.Random], str], ...]
SHAPES: Shapes = (shared, deep, wide, cyclic, dangling, rows, mixed)
MODEST: Shapes = (small, rows, mixed)


@functools.cache
def _sound() -> pb.Pipeline:
    pipeline = beam.Pipeline()
    pairs = pipeline | beam.Create([("a", 1)]) | "pair" >> beam.Map(lambda x: x)
    kept = pairs | beam.Reshuffle() | "keep" >> beam.ParDo(Keeps())
    windowed = pairs | beam.WindowInto(FixedWindows(1))
    windowed | beam.GroupByKey() | "use" >> beam.Map(str)
    pairs | beam.CombinePerKey(sum)
    pairs | "look" >> beam.Map(lambda x, y: x, beam.pvalue.AsIter(kept))
    return pipeline.to_runner_api(default_environment=ProcessEnvironment("run"))


def pipeline_of(seed: int) -> pb.Pipeline:
    """Make a pipeline: a sound one, some of whose coders were replaced."""
    random_ = random.Random(seed)
    proto = pb.Pipeline()
    proto.CopyFrom(_sound())
    coders = Coders(proto)
    before = sorted(proto.components.coders)
    shapes = random_.choice([SHAPES, MODEST])
    made = [random_.choice(shapes)(coders, random_) for _ in range(random_.randint(1, 3))]
    made += [coders.add(urns.CODER_KV, random_.choices(made, k=2)) for _ in range(2)]
    made.append(coders.add(urns.CODER_ITERABLE, [random_.choice(made)]))
    for collection in proto.components.pcollections.values():
        if random_.random() < 0.3:
            collection.coder_id = random_.choice(made)
    for id_ in before:  # also those of states, timers, accumulators and windows
        if random_.random() < 0.2:
            coders.of[id_].CopyFrom(coders.of[random_.choice(made)])
        elif coders.of[id_].component_coder_ids and random_.random() < 0.3:
            coders.of[id_].component_coder_ids[-1] = random_.choice(made)
    return proto


def outcome(proto: Any, *, is_streaming: bool) -> str:
    """Compile a pipeline, and describe its stages; return "", or the error if it is refused."""
    try:
        plan = compile_pipeline(proto, is_streaming=is_streaming, apart=True)
        stage_places(plan, forms_of, has_maps_in_bags)
        for stage in plan.stages:
            describe(plan, stage)
    except PipelineError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    for given in range(int(sys.argv[1]), int(sys.argv[2]) + 1):
        for in_epochs in (False, True):
            print(f"seed {given}, streams: {in_epochs}", end=": ", flush=True)
            print(outcome(pipeline_of(given), is_streaming=in_epochs)[:100], flush=True)
