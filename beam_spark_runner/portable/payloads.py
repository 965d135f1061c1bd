"""Parses the payloads of transforms; the only place that knows their message types."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from google.protobuf.message import DecodeError, Message

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import InvalidPipelineError
from beam_spark_runner.core.ids import CoderId
from beam_spark_runner.graph.model import Transform

PAR_DO_URNS = frozenset(
    {
        urns.PAR_DO,
        urns.SDF_PAIR_WITH_RESTRICTION,
        urns.SDF_SPLIT_AND_SIZE_RESTRICTIONS,
        urns.SDF_PROCESS_SIZED_ELEMENT_AND_RESTRICTIONS,
        urns.SDF_TRUNCATE_SIZED_RESTRICTIONS,
    }
)
"""Their payload is a ``ParDoPayload``."""

COMBINE_URNS = frozenset(
    {
        urns.COMBINE_PER_KEY,
        urns.COMBINE_PER_KEY_PRECOMBINE,
        urns.COMBINE_PER_KEY_MERGE_ACCUMULATORS,
        urns.COMBINE_PER_KEY_EXTRACT_OUTPUTS,
        urns.COMBINE_PER_KEY_CONVERT_TO_ACCUMULATORS,
        urns.COMBINE_GROUPED_VALUES,
    }
)
"""Their payload is a ``CombinePayload``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadFacts:
    """Fields of ``graph.model.Transform`` from its payload, and the coders that this refers to."""

    side_inputs: Mapping[str, str] = field(default_factory=dict)
    accumulator_coder: CoderId | None = None
    restriction_coder: CoderId | None = None
    element_coder: CoderId | None = None
    state_ids: tuple[str, ...] = ()
    timer_families: tuple[str, ...] = ()
    requires_stable_input: bool = False
    requires_time_sorted_input: bool = False
    finalizes_bundles: bool = False
    timer_coders: tuple[CoderId, ...] = ()
    coders: tuple[CoderId, ...] = ()


def read_payload(urn: str, payload: bytes, where: str) -> PayloadFacts:
    """Decode the facts that the runner needs from a payload.

    Args:
        urn: The URN of the transform. Payloads of unknown URNs are opaque and have no facts.
        payload: The payload of the transform, ``FunctionSpec.payload``.
        where: The name of the transform, for the error.

    Raises:
        InvalidPipelineError: The payload is missing, or not of the type that the URN requires.

    Source: proto ParDoPayload, CombinePayload, WindowIntoPayload, TestStreamPayload.
    """
    if urn in PAR_DO_URNS:
        return _of_par_do(parse(beam_runner_api_pb2.ParDoPayload, payload, where), where)
    if urn in COMBINE_URNS:
        combine = parse(beam_runner_api_pb2.CombinePayload, payload, where)
        if not combine.accumulator_coder_id:
            raise InvalidPipelineError("its CombinePayload names no accumulator coder", where)
        coder = CoderId(combine.accumulator_coder_id)
        return PayloadFacts(accumulator_coder=coder, coders=(coder,))
    if urn == urns.ASSIGN_WINDOWS:
        # Python sends a WindowingStrategy, the other SDKs a WindowIntoPayload. Both have the
        # window fn in field 1; only the former names a coder.
        strategy = parse(beam_runner_api_pb2.WindowingStrategy, payload, where)
        coder_id = strategy.window_coder_id
        return PayloadFacts(coders=(CoderId(coder_id),) if coder_id else ())
    if urn == urns.TEST_STREAM:
        played = parse(beam_runner_api_pb2.TestStreamPayload, payload, where)
        coder = CoderId(played.coder_id)
        return PayloadFacts(element_coder=coder, coders=(coder,))
    return PayloadFacts()


def parse(message: Any, coded: bytes, where: str) -> Any:
    """Decode a required message of the class ``message``.

    Raises:
        InvalidPipelineError: The message is empty or cannot be decoded.
    """
    if not coded:
        raise InvalidPipelineError(f"its {message.__name__} is missing", where)
    try:
        return message.FromString(coded)
    except DecodeError as error:
        raise InvalidPipelineError(
            f"its {message.__name__} cannot be decoded: {error}", where
        ) from error


def _of_par_do(par_do: beam_runner_api_pb2.ParDoPayload, where: str) -> PayloadFacts:
    if not par_do.HasField("do_fn"):
        raise InvalidPipelineError("its ParDoPayload holds no DoFn", where)
    specs: list[Message] = [*par_do.state_specs.values(), *par_do.timer_family_specs.values()]
    restriction = par_do.restriction_coder_id
    coders = {CoderId(id_) for id_ in _coder_ids(specs)} | (
        {CoderId(restriction)} if restriction else set()
    )
    return PayloadFacts(
        side_inputs={
            name: par_do.side_inputs[name].access_pattern.urn for name in sorted(par_do.side_inputs)
        },
        restriction_coder=CoderId(restriction) if restriction else None,
        state_ids=tuple(sorted(par_do.state_specs)),
        timer_families=tuple(sorted(par_do.timer_family_specs)),
        requires_stable_input=par_do.requires_stable_input,
        requires_time_sorted_input=par_do.requires_time_sorted_input,
        finalizes_bundles=par_do.requests_finalization,
        timer_coders=tuple(
            CoderId(spec.timer_family_coder_id) for spec in par_do.timer_family_specs.values()
        ),
        coders=tuple(sorted(coders)),
    )


def window_mapping_fn(transform: Transform, local_name: str) -> beam_runner_api_pb2.FunctionSpec:
    """Return the WindowMappingFn from a step's main input to a side input.

    Source: proto SideInput.
    """
    par_do = parse(beam_runner_api_pb2.ParDoPayload, transform.payload, transform.name)
    return par_do.side_inputs[local_name].window_mapping_fn


def forms_of(transform: Transform) -> Iterator[tuple[str, tuple[CoderId, ...]]]:
    """Describe the states and timers of a transform: the kind of each, and its coders.

    Source: proto StateSpec, TimerFamilySpec.
    """
    if transform.urn not in PAR_DO_URNS:
        return
    par_do = parse(beam_runner_api_pb2.ParDoPayload, transform.payload, transform.name)
    for id_, spec in sorted(par_do.state_specs.items()):
        yield f"{id_}: {spec.WhichOneof('spec')}", tuple(map(CoderId, _coder_ids([spec])))
    for id_, spec in sorted(par_do.timer_family_specs.items()):
        yield f"{id_}: {spec.time_domain}", tuple(map(CoderId, _coder_ids([spec])))


def is_map_of_ours(spec: beam_runner_api_pb2.StateSpec) -> bool:
    """Whether a state is a ``MapSpec`` of ``transforms.declarative``.

    It is a map that is requested as a bag, as by an SDK that knows nothing of this package.
    """
    return spec.HasField("map_spec") and bool(spec.protocol.urn == common_urns.user_state.BAG.urn)


def has_maps_of_ours(transform: Transform) -> bool:
    """Whether a transform has a state of ``is_map_of_ours``."""
    if transform.urn not in PAR_DO_URNS:
        return False
    par_do = parse(beam_runner_api_pb2.ParDoPayload, transform.payload, transform.name)
    return any(map(is_map_of_ours, par_do.state_specs.values()))


def _coder_ids(messages: Iterable[Message]) -> Iterator[str]:
    """Yield all set fields called ``…coder_id``, which differ between kinds of state specs."""
    for message in messages:
        for descriptor, value in message.ListFields():
            if isinstance(value, Message):
                yield from _coder_ids([value])
            elif descriptor.name.endswith("coder_id"):
                yield value
