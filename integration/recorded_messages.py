"""What is kept of recorded messages: a few of each shape, and none that is large."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from apache_beam.portability.api import (
    beam_artifact_api_pb2,
    beam_fn_api_pb2,
    beam_job_api_pb2,
)
from google.protobuf.message import Message

from tests.fuzz.corpus import NO_STAGE, Recorded, frames

_FN_API = "/org.apache.beam.model.fn_execution.v1."
_JOB_API = "/org.apache.beam.model.job_management.v1."
_TYPES: dict[str, type[Message]] = {
    f"<{_FN_API}BeamFnLogging/Logging": beam_fn_api_pb2.LogEntry.List,
    f"<{_FN_API}BeamFnWorkerStatus/WorkerStatus": beam_fn_api_pb2.WorkerStatusResponse,
    f"<{_JOB_API}ArtifactRetrievalService/ResolveArtifacts": (
        beam_artifact_api_pb2.ResolveArtifactsRequest
    ),
    f"<{_JOB_API}ArtifactRetrievalService/GetArtifact": beam_artifact_api_pb2.GetArtifactRequest,
    f"<{_JOB_API}ArtifactStagingService/ReverseArtifactRetrievalService": (
        beam_artifact_api_pb2.ArtifactResponseWrapper
    ),
    f"<{_JOB_API}JobService/Prepare": beam_job_api_pb2.PrepareJobRequest,
    f"<{_JOB_API}JobService/Run": beam_job_api_pb2.RunJobRequest,
    f"<{_JOB_API}JobService/GetState": beam_job_api_pb2.GetJobStateRequest,
    f"<{_JOB_API}JobService/GetStateStream": beam_job_api_pb2.GetJobStateRequest,
    f"<{_JOB_API}JobService/GetMessageStream": beam_job_api_pb2.JobMessagesRequest,
    f"<{_JOB_API}JobService/GetJobMetrics": beam_job_api_pb2.GetJobMetricsRequest,
    f"<{_JOB_API}JobService/Cancel": beam_job_api_pb2.CancelJobRequest,
}
_OF_STAGES: dict[str, type[Message]] = {
    f"<{_FN_API}BeamFnControl/Control": beam_fn_api_pb2.InstructionResponse,
    f"<{_FN_API}BeamFnData/Data": beam_fn_api_pb2.Elements,
    f"<{_FN_API}BeamFnState/State": beam_fn_api_pb2.StateRequest,
}
_REQUEST = f">{_FN_API}BeamFnControl/Control"
_DESCRIPTOR = f">{_FN_API}BeamFnControl/GetProcessBundleDescriptor"
_OF_ONE_SHAPE = 3
_STAGES_OF_ONE_SHAPE = 2
_MAX_BYTES = 4_000
_MAX_BYTES_OF = {"PrepareJobRequest": 150_000, "ProcessBundleDescriptor": 30_000}


def compact(folder: Path) -> list[Recorded]:
    """Return what is kept of the files that ``integration.message_tap`` has written.

    The descriptors of stages come first.
    """
    counts: Counter[tuple[Any, ...]] = Counter()
    stages: list[bytes] = []
    found: list[Recorded] = []
    for path in sorted(folder.glob("*.frames"), key=lambda path: path.stat().st_mtime_ns):
        by_harness: dict[str, list[Recorded]] = defaultdict(list)
        for each in frames(path.read_bytes()):
            kind, _, harness = each.kind.partition(" ")
            by_harness[harness].append(each._replace(kind=kind))
        for recorded in by_harness.values():
            numbers = _numbers_of_stages(recorded, stages, counts)
            for kind, _, coded in recorded:
                if kind in _TYPES:
                    found.append(Recorded(kind, NO_STAGE, coded))
                elif kind in _OF_STAGES:
                    found += _of_stages(kind, _OF_STAGES[kind].FromString(coded), numbers)
    kept = [Recorded("ProcessBundleDescriptor", number, each) for number, each in enumerate(stages)]
    for kind, stage, coded in found:
        type_ = _TYPES.get(kind) or _OF_STAGES[kind]
        message = type_.FromString(coded)
        if isinstance(message, beam_fn_api_pb2.InstructionResponse) and len(coded) > _MAX_BYTES:
            _leave_out_metrics(message)
            coded = message.SerializeToString()
        name = type_.DESCRIPTOR.full_name.rpartition(".v1.")[2]
        shape = (name, stage if kind in _OF_STAGES else NO_STAGE, *sorted(_shape(message)))
        is_small = len(coded) <= _MAX_BYTES_OF.get(name, _MAX_BYTES)
        if is_small and counts[shape] < _OF_ONE_SHAPE:
            counts[shape] += 1
            kept.append(Recorded(name, stage, coded))
    return kept


def _numbers_of_stages(
    recorded: list[Recorded], stages: list[bytes], counts: Counter[tuple[Any, ...]]
) -> dict[str, int]:
    """Add the descriptors of a harness to ``stages``; return their numbers by instruction."""
    by_id: dict[str, int] = {}
    for kind, _, coded in recorded:
        if kind == _DESCRIPTOR:
            descriptor = beam_fn_api_pb2.ProcessBundleDescriptor.FromString(coded)
            shape = ("stage", *sorted(_shape_of_stage(descriptor)))
            is_small = len(coded) <= _MAX_BYTES_OF["ProcessBundleDescriptor"]
            if descriptor.id in by_id or not is_small or counts[shape] >= _STAGES_OF_ONE_SHAPE:
                continue
            counts[shape] += 1
            by_id[descriptor.id] = len(stages)
            stages.append(coded)
    numbers: dict[str, int] = {}
    for kind, _, coded in recorded:
        if kind == _REQUEST:
            request = beam_fn_api_pb2.InstructionRequest.FromString(coded)
            which = request.WhichOneof("request")
            asked = getattr(request, which)
            if which == "process_bundle":
                number = by_id.get(asked.process_bundle_descriptor_id)
            else:
                number = numbers.get(getattr(asked, "instruction_id", ""))
            if number is not None:
                numbers[request.instruction_id] = number
    return numbers


def _shape_of_stage(descriptor: Any) -> Iterator[str]:
    for transform in descriptor.transforms.values():
        yield transform.spec.urn
    for coder in descriptor.coders.values():
        yield coder.spec.urn
    if descriptor.timer_api_service_descriptor.url:
        yield "timers"


def _of_stages(kind: str, message: Any, numbers: dict[str, int]) -> Iterator[Recorded]:
    """Yield a message once for each stage that it is about, with what is about that alone."""
    if not isinstance(message, beam_fn_api_pb2.Elements):
        if (number := numbers.get(message.instruction_id)) is not None:
            yield Recorded(kind, number, message.SerializeToString())
        return
    by_stage: dict[int, Any] = defaultdict(beam_fn_api_pb2.Elements)
    for field in ("data", "timers"):
        for each in getattr(message, field):
            if (number := numbers.get(each.instruction_id)) is not None:
                getattr(by_stage[number], field).append(each)
    for number, part in by_stage.items():
        yield Recorded(kind, number, part.SerializeToString())


def _leave_out_metrics(response: Any) -> None:
    """Keep one metric of each kind in a response."""
    which = response.WhichOneof("response")
    if which in ("process_bundle", "process_bundle_progress"):
        each = getattr(response, which)
        kept = {(info.urn, info.type): info for info in each.monitoring_infos}
        del each.monitoring_infos[:]
        each.monitoring_infos.extend(kept.values())


def _shape(message: Message) -> Iterator[str]:
    """Yield the paths of the fields that are set, and which URNs and types they have."""
    for field, value in message.ListFields():
        if field.message_type is None:
            urn = value if field.name in ("urn", "type", "user_state_id", "timer_family_id") else ""
            yield f"{field.name}{urn}"
        elif field.message_type.GetOptions().map_entry:
            yield field.name
        else:
            for each in value if field.is_repeated else [value]:
                for path in _shape(each):
                    yield f"{field.name}.{path}"
