"""Packs combiners of the same input into one step, if the pipeline is annotated for it."""

from apache_beam.portability import common_urns, python_urns
from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.portable.alternatives import chosen_environments
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
    """Pack the combiners inside composites with Beam's annotation, so that they share one shuffle.

    A packed combiner is pickled Python, which only the Python SDK can make. Beam's own client
    packs before it submits a pipeline to a job service. This function calls the same code, which
    is imported for annotated pipelines only.

    Source: Beam ``PortableRunner._optimize_pipeline``, ``translations.pack_combiners``.
    """
    transforms = pipeline.components.transforms.values()
    if not any(
        python_urns.APPLY_COMBINER_PACKING in transform.annotations for transform in transforms
    ):
        return pipeline
    # A packed combiner cannot be expanded, so that it is lifted, even if its trigger forbids it.
    # Beam packs all combiners of a pipeline or none, so one that may not be lifted prevents it.
    combiners = [
        transform for transform in transforms if transform.spec.urn == urns.COMBINE_PER_KEY
    ]
    components = pipeline.components
    environments = chosen_environments(components)
    if not all(
        combiner_may_be_lifted(transform, components, environments) for transform in combiners
    ):
        return pipeline
    from apache_beam.runners.portability.fn_api_runner import translations

    packed: beam_runner_api_pb2.Pipeline = translations.optimize_pipeline(
        pipeline,
        phases=[translations.pack_combiners, translations.sort_stages],
        known_runner_urns=_KNOWN,
        partial=True,
    )
    return packed
