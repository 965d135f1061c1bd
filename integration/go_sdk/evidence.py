"""What a job server says of a Go pipeline that has ended: has it run, and were its assertions?"""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field

from apache_beam.portability.api import beam_runner_api_pb2

_PAR_DO = "beam:transform:pardo:v1"
_COMBINE = "beam:transform:combine_per_key:v1"
_ASSERTION = "passert."
_FAILS = "passert.fail"
"""DoFns of Go's ``passert`` that fail with the first element that reaches them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJob:
    """A job that a test has submitted.

    Attributes:
        state: the final one.
        pipeline: as it was submitted.
        elements: of each collection that bundles have reported, by id.
        counters: of users, that bundles have reported, by step, namespace and name.
        error: the last message of the job that is an error.
    """

    state: str
    pipeline: beam_runner_api_pb2.Pipeline
    elements: dict[str, int] = field(default_factory=dict)
    counters: dict[tuple[str, str, str], int] = field(default_factory=dict)
    error: str = ""


def missing(job: EndedJob) -> Iterator[str]:
    """Yield what speaks against the job having done what its test believes.

    A job that failed, as its test expects, has done so in a step of the SDK's, which the error
    names. In one that is done, each assertion has had elements; those that fail with their first
    element are fed by a step that has had some. A runner combines in its own steps in place of
    those in a Combine, whose own input counts for them.
    """
    steps = {
        id_: step
        for id_, step in job.pipeline.components.transforms.items()
        if step.spec.urn == _PAR_DO
    }
    if job.state == "FAILED":
        if not any(_is_named(id_, step, job.error) for id_, step in steps.items()):
            yield f"the job failed, but not in a step of the SDK's: {job.error[:200]!r}"
        return
    if job.state != "DONE":
        yield f"the final state is {job.state}"
        return
    if not any(job.elements.get(each) for step in steps.values() for each in _ends(step)):
        yield "no element has passed through the SDK harness"
        return
    makers = {
        collection: step
        for step in job.pipeline.components.transforms.values()
        if not step.subtransforms
        for collection in step.outputs.values()
    }
    combines = {
        id_: step
        for step in job.pipeline.components.transforms.values()
        if step.spec.urn == _COMBINE
        for id_ in step.subtransforms
    }
    for id_, step in sorted(steps.items(), key=lambda item: item[1].unique_name):
        name = step.unique_name.rpartition("/")[2]
        if not name.startswith(_ASSERTION):
            continue
        if not name.startswith(_FAILS):
            if not _had_elements(combines.get(id_, step), job.elements):
                yield f"the assertion {step.unique_name} has had no elements"
        elif not any(_had_elements(makers[each], job.elements) for each in step.inputs.values()):
            yield f"nothing has reached the step upstream of {step.unique_name}"


def _is_named(id_: str, step: beam_runner_api_pb2.PTransform, error: str) -> bool:
    """Whether an error is one of a step: by the runner's words, or by those of Go's SDK."""
    return step.unique_name in error or f"PID:{id_}, " in error


def _ends(step: beam_runner_api_pb2.PTransform) -> Iterator[str]:
    yield from step.inputs.values()
    yield from step.outputs.values()


def _main_inputs(step: beam_runner_api_pb2.PTransform) -> Iterator[str]:
    """Yield the collections whose elements the step processes."""
    aside: Container[str] = ()
    if step.spec.urn == _PAR_DO:
        aside = beam_runner_api_pb2.ParDoPayload.FromString(step.spec.payload).side_inputs
    return (each for name, each in step.inputs.items() if name not in aside)


def _had_elements(step: beam_runner_api_pb2.PTransform, elements: Mapping[str, int]) -> bool:
    return any(elements.get(each) for each in _main_inputs(step))
