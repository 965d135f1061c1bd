"""Describes a pipeline by what is the same each time that one program builds it.

Pickles of user code are not: they depend on the hash seed, and steps may draw random names.
"""

import functools
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping

from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.core.table_steps import READ_TABLE, WRITE_TABLE

_ADDRESS = re.compile(rb"0x[0-9a-f]+")
_OURS = (READ_TABLE, WRITE_TABLE)  # their payloads are JSON of the runner's own

Description = Mapping[str, str]
"""What is described of a step, by a word for people."""


def described_pipeline(pipeline: beam_runner_api_pb2.Pipeline) -> Mapping[str, Description]:
    """Describe the primitive steps and composites of a pipeline, by their names.

    Args:
        pipeline: The pipeline, as an SDK made it.
    """
    components = pipeline.components
    names = {id_: transform.unique_name for id_, transform in components.transforms.items()}
    producers = {
        collection: (names[id_], tag)
        for id_, transform in sorted(components.transforms.items())
        if not transform.subtransforms
        for tag, collection in sorted(transform.outputs.items())
        if collection not in transform.inputs.values()  # an empty composite passes its input on
    }

    @functools.cache  # coders share their components, at any depth
    def coder(id_: str) -> str:
        spec, parts = components.coders[id_].spec, components.coders[id_].component_coder_ids
        # Pickled coders differ from build to build.
        fields = spec.payload if spec.urn == urns.CODER_ROW else b""
        return _digest(repr((spec.urn, fields, [*map(coder, parts)])).encode())

    return {
        transform.unique_name: dict(_described(transform, components, producers, coder))
        for transform in components.transforms.values()
        if transform.unique_name
    }


def _described(
    transform: beam_runner_api_pb2.PTransform,
    components: beam_runner_api_pb2.Components,
    producers: Mapping[str, tuple[str, str]],
    coder: Callable[[str], str],
) -> Iterator[tuple[str, str]]:
    yield "its kind", transform.spec.urn
    if transform.spec.urn in _OURS:
        yield "its table", _digest(transform.spec.payload)
    if transform.spec.urn == urns.PAR_DO:
        payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
        yield (
            "its state and timers",
            repr([*sorted(payload.state_specs), *sorted(payload.timer_family_specs)]),
        )
        yield (
            "its side inputs",
            repr(
                sorted(
                    (name, each.access_pattern.urn) for name, each in payload.side_inputs.items()
                )
            ),
        )
    data = sorted(each.SerializeToString(deterministic=True) for each in transform.display_data)
    yield "its display data", _digest(_ADDRESS.sub(b"", b"\0".join(data)))
    yield (
        "its input",
        repr(sorted((tag, producers.get(id_)) for tag, id_ in transform.inputs.items())),
    )
    for tag, id_ in transform.outputs.items():
        collection = components.pcollections[id_]
        yield f"the coder of its output {tag}", coder(collection.coder_id)
        windowing = components.windowing_strategies[collection.windowing_strategy_id]
        yield f"the windowing of its output {tag}", _windowing(windowing)


def _windowing(windowing: beam_runner_api_pb2.WindowingStrategy) -> str:
    described = beam_runner_api_pb2.WindowingStrategy()
    described.CopyFrom(windowing)
    described.window_coder_id = described.environment_id = ""
    if described.window_fn.urn not in urns.WINDOW_FNS:
        described.window_fn.payload = b""
    return _digest(described.SerializeToString(deterministic=True))


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()
