"""Finds out from the job server whether a Java pipeline has run, and each of its assertions."""

import re
from collections.abc import Iterator

from integration.go_sdk.evidence import EndedJob

_ASSERTION = re.compile(r"(?:^|/)PAssert\$\d+$")
"""The name of a ``PAssert``, a composite step."""
_NAMESPACE = "org.apache.beam.sdk.testing.PAssert"
_SATISFIED = "PAssertSuccess"
_OF_USERS = "org.apache.beam.sdk.util.UserCodeException"
"""What Java's SDK makes of exceptions of user code."""


def missing(job: EndedJob) -> Iterator[str]:
    """Yield what is missing as evidence that the job has done what its test believes.

    A job that failed, as its test expects, has failed in user code, as the error says.
    If a job is done, each assertion has counted that it is satisfied. A job without assertions has
    no evidence: all that its test checks is outside the pipeline.
    """
    if job.state == "FAILED":
        if _OF_USERS not in job.error:
            yield f"the job failed, but not in user code: {job.error[:200]!r}"
        return
    if job.state != "DONE":
        yield f"the final state is {job.state}"
        return
    satisfied = {
        step
        for (step, namespace, name), count in job.counters.items()
        if (namespace, name) == (_NAMESPACE, _SATISFIED) and count
    }
    steps = job.pipeline.components.transforms
    assertions = {id_ for id_, step in steps.items() if _ASSERTION.search(step.unique_name)}
    if not assertions:
        yield "it has no assertion"
    for id_ in sorted(assertions, key=lambda each: steps[each].unique_name):
        if satisfied.isdisjoint(_inside(job, id_)):
            yield f"{steps[id_].unique_name} has not been satisfied"


def _inside(job: EndedJob, id_: str) -> Iterator[str]:
    yield id_
    for each in job.pipeline.components.transforms[id_].subtransforms:
        yield from _inside(job, each)
