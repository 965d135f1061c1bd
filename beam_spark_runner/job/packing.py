"""Packs combiners of one input into one step, if the pipeline is annotated for it."""

from apache_beam.portability import common_urns, python_urns
from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.portable.pipeline import combiner_may_be_lifted

_KNOWN = frozenset(
    {
        common_urns.primitives.IMPULSE.urn,
        common_urns.primitives.FLATTEN.urn,
        common_urns.primitives.GROUP_BY_KEY.urn,
        common_urns.composites.RESHUFFLE.urn,
    }
)


def pack_combiners(pipeline: beam_runner_api_pb2.Pipeline) -> beam_runner_api_pb2.Pipeline:
    """Pack the combiners inside composites that are annotated so; one shuffle serves all of them.

    What is packed is pickled Python, which only the SDK that wrote it can make. Its own client
    does so before it hands a pipeline to a job service; here the same code runs, and is imported
    for those pipelines only.

    Source: Beam ``PortableRunner._optimize_pipeline``, ``translations.pack_combiners``.
    """
    transforms = pipeline.components.transforms.values()
    if not any(python_urns.APPLY_COMBINER_PACKING in each.annotations for each in transforms):
        return pipeline
    # A packed combiner has no parts: it could only be lifted, whatever the trigger is. Beam packs
    # all of a pipeline or nothing.
    combiners = [each for each in transforms if each.spec.urn == urns.COMBINE_PER_KEY]
    if not all(combiner_may_be_lifted(each, pipeline.components) for each in combiners):
        return pipeline
    from apache_beam.runners.portability.fn_api_runner import translations

    packed: beam_runner_api_pb2.Pipeline = translations.optimize_pipeline(
        pipeline,
        phases=[translations.pack_combiners, translations.sort_stages],
        known_runner_urns=_KNOWN,
        partial=True,
    )
    return packed
