"""Our stages against those of Beam's own FnApiRunner, each difference stated.

Beam's stages come from ``translations``, which we may use in tests only. Both
sides are compared as sets of user transforms that run together; Flattens, which
Beam executes in the runner, are left out, as are the runner's own steps.
"""

from collections.abc import Callable, Iterator

import apache_beam as beam
import pytest
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import translations
from apache_beam.transforms.core import RestrictionProvider

from beam_spark_runner.graph import passes
from beam_spark_runner.graph.facts import SDK_URNS
from beam_spark_runner.portable import pipeline as portable_pipeline

Together = frozenset[str]


class _Once(RestrictionProvider):  # type: ignore[misc]
    def initial_restriction(self, element: object) -> object:
        return beam.io.restriction_trackers.OffsetRange(0, 1)

    def create_tracker(self, restriction: object) -> object:
        return beam.io.restriction_trackers.OffsetRestrictionTracker(restriction)

    def restriction_size(self, element: object, restriction: object) -> int:
        return 1


class _Read(beam.DoFn):  # type: ignore[misc]
    def process(
        self, element: object, tracker: object = beam.DoFn.RestrictionParam(_Once())
    ) -> Iterator[object]:
        yield element


def step(name: str) -> beam.PTransform:
    return name >> beam.Map(lambda x, *_: x)


def beams_stages(proto: beam_runner_api_pb2.Pipeline) -> set[Together]:
    _, stages = translations.create_and_optimize_stages(
        proto,
        phases=[
            translations.annotate_downstream_side_inputs,
            translations.fix_side_input_pcoll_coders,
            translations.lift_combiners,
            translations.expand_sdf,
            translations.expand_gbk,
            translations.sink_flattens,
            translations.greedily_fuse,
        ],
        known_runner_urns=frozenset(
            {
                common_urns.primitives.IMPULSE.urn,
                common_urns.primitives.GROUP_BY_KEY.urn,
                common_urns.primitives.FLATTEN.urn,
                common_urns.composites.RESHUFFLE.urn,
            }
        ),
    )
    users = users_steps((t.unique_name, t.spec.urn) for stage in stages for t in stage.transforms)
    together = (frozenset(t.unique_name for t in s.transforms) & users for s in stages)
    return {names for names in together if names}


def our_stages(proto: beam_runner_api_pb2.Pipeline) -> set[Together]:
    graph = passes.run_passes(portable_pipeline.from_proto(proto), passes.BATCH)
    users = users_steps((t.name, t.urn) for t in graph.transforms.values())
    together = (
        frozenset(graph.transforms[id_].name for id_ in stage.transforms) & users
        for stage in graph.stages
    )
    return {names for names in together if names}


def users_steps(steps: Iterator[tuple[str, str]]) -> Together:
    """Keep what an SDK executes; the reads and writes that Beam adds have other URNs."""
    return frozenset(name for name, urn in steps if urn in SDK_URNS)


def linear(root: beam.Pipeline) -> None:
    pairs = root | beam.Impulse() | step("A") | beam.WithKeys(1) | beam.GroupByKey()
    pairs | step("B") | beam.Reshuffle() | step("C") | step("D")


def several_readers(root: beam.Pipeline) -> None:
    source = root | beam.Impulse() | step("A")
    source | step("B")
    keyed = source | beam.WithKeys(1)
    grouped = keyed | beam.GroupByKey()
    keyed | step("C")
    grouped | step("D")
    grouped | step("E")


def combine(root: beam.Pipeline) -> None:
    ages = root | beam.Impulse() | step("A") | beam.WithKeys(1)
    ages | "Mean" >> beam.CombinePerKey(beam.combiners.MeanCombineFn()) | step("B")


def splittable(root: beam.Pipeline) -> None:
    root | beam.Impulse() | step("A") | "Read" >> beam.ParDo(_Read()) | step("B")


def several_outputs(root: beam.Pipeline) -> None:
    outputs = root | beam.Impulse() | beam.ParDo(_Read()).with_outputs("x", main="y")
    outputs.x | step("A") | beam.WithKeys(1) | beam.GroupByKey() | step("B")
    outputs.y | step("C")


def side_input_from_elsewhere(root: beam.Pipeline) -> None:
    table = root | "Other" >> beam.Impulse() | step("Table")
    big = root | beam.Impulse() | step("Big")
    big | "Use" >> beam.Map(lambda x, _: x, beam.pvalue.AsList(table)) | step("Next")


def side_input_from_the_same_stage(root: beam.Pipeline) -> None:
    big = root | beam.Impulse() | step("Big")
    table = big | step("Table")
    big | "Use" >> beam.Map(lambda x, _: x, beam.pvalue.AsList(table)) | step("Next")


def flatten(root: beam.Pipeline) -> None:
    a = root | "First" >> beam.Impulse() | step("A")
    b = root | "Second" >> beam.Impulse() | step("B")
    (a, b) | beam.Flatten() | step("C") | step("D")


def word_count(root: beam.Pipeline) -> None:
    lines = root | "Read" >> beam.io.ReadFromText("x*", validate=False)
    counts = lines | "Split" >> beam.FlatMap(str.split) | beam.combiners.Count.PerElement()
    counts | step("Format")


def together(*names: str) -> set[Together]:
    return {frozenset(stage.split()) for stage in names}


@pytest.mark.parametrize(
    ("build", "only_ours", "only_beams"),
    [
        pytest.param(linear, set(), set(), id="a chain with a grouping and a Reshuffle"),
        pytest.param(several_readers, set(), set(), id="several readers, one of them a grouping"),
        pytest.param(combine, set(), set(), id="a lifted combine"),
        pytest.param(splittable, set(), set(), id="a splittable DoFn"),
        pytest.param(several_outputs, set(), set(), id="several outputs"),
        pytest.param(word_count, set(), set(), id="word count"),
        pytest.param(
            side_input_from_the_same_stage,
            set(),
            set(),
            id="a side input that the main input's stage makes",
        ),
        # Beam joins a side-input reader to the maker of its main input, if that
        # does not make the side input too; then all of that stage waits. Here a
        # reader begins a stage: the main input may also feed steps that need not wait.
        pytest.param(
            side_input_from_elsewhere,
            together("Big", "Use Next"),
            together("Big Use Next"),
            id="a side input from elsewhere",
        ),
        # Beam materialises what is flattened; here a Flatten is unzipped.
        pytest.param(
            flatten,
            together("A C D", "B C D"),
            together("A", "B", "C D"),
            id="a Flatten",
        ),
    ],
)
def test_same_stages_as_beam(
    build: Callable[[beam.Pipeline], None], only_ours: set[Together], only_beams: set[Together]
) -> None:
    pipeline = beam.Pipeline()
    build(pipeline)
    ours, beams = our_stages(pipeline.to_runner_api()), beams_stages(pipeline.to_runner_api())
    assert ours
    assert ours - beams == only_ours
    assert beams - ours == only_beams
