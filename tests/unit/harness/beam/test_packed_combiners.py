"""Combiners that are packed into one: their results leave by tags of their own."""

from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import python_urns
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.harness.beam.embedded_stage import EmbeddedStage
from beam_spark_runner.job.prepare.packing import pack_combiners
from beam_spark_runner.portable.descriptor import describe
from tests.compiled import compile_pipeline
from tests.unit.portable.pipelines import proto_of


class Taken:
    """A receiver."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def accept_chunk(self, values: list[Any], origins: list[Any]) -> None:
        self.values += values

    def accept(self, windowed_value: Any) -> None:
        self.values.append(windowed_value.value)


class Packable(beam.PTransform):  # type: ignore[misc]
    def annotations(self) -> dict[str, bytes]:
        return {python_urns.APPLY_COMBINER_PACKING: b""}

    def expand(self, pairs: Any) -> Any:
        for name, combine in (("least", min), ("most", max)):
            combined = pairs | name >> beam.CombinePerKey(combine)
            combined | f"{name} kept" >> beam.Reshuffle() | f"{name} read" >> beam.Map(print)
        return pairs


class PackableAlone(beam.PTransform):  # type: ignore[misc]
    """Asks for it, and has one combiner."""

    def annotations(self) -> dict[str, bytes]:
        return Packable.annotations(self)

    def expand(self, numbers: Any) -> Any:
        return numbers | beam.CombineGlobally(sum)


def by_its_client(proto: Any) -> Any:
    return PortableRunner._optimize_pipeline(proto, PipelineOptions())


@pytest.mark.parametrize("pack", [by_its_client, pack_combiners])
def test_what_is_unpacked_has_no_main_output(pack: Callable[[Any], Any]) -> None:
    def build(p: beam.Pipeline) -> None:
        p | beam.Impulse() | beam.FlatMap(list).with_output_types(tuple[str, int]) | Packable()

    plan = compile_pipeline(pack(proto_of(build)))
    names = {id_: each.name for id_, each in plan.graph.transforms.items()}
    (id_,) = (
        id_
        for id_, stage in plan.stages.items()
        if any(names[step].endswith("/Unpack") for step in stage.transforms)
    )
    stage = EmbeddedStage("unpacks", describe(plan, id_))
    taken = {collection: Taken() for collection in stage.output_coders}
    bundle = stage.start_bundle(taken, {})
    accumulators = [([3], [3]), ([5], [5])]
    bundle.push([("key", accumulators)], [WindowedValue(None, 0, (GlobalWindow(),))])
    bundle.finish()
    stage.close()
    assert [each.values for each in taken.values()] == [[("key", 3)], [("key", 5)]]


def test_only_what_asks_for_it_is_packed() -> None:
    def build(p: beam.Pipeline) -> None:
        pairs = p | beam.Impulse() | beam.FlatMap(list).with_output_types(tuple[str, int])
        Packable().expand(pairs)

    proto = proto_of(build)
    assert pack_combiners(proto) is proto
    # One that is run by itself is nothing to pack.
    alone = proto_of(lambda p: p | beam.Impulse() | beam.Map(len) | PackableAlone())
    graph = compile_pipeline(pack_combiners(alone)).graph
    steps = {each.name.rpartition("/")[2] for each in graph.transforms.values()}
    assert not steps & {"Pack", "Unpack"}
