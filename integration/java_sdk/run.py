"""Runs Java's tests one by one against a job server, and asks it about the jobs of each."""

import uuid
from collections.abc import Sequence

from integration.go_sdk.run import Client, Outcome, Verdict
from integration.java_sdk.evidence import missing
from integration.java_sdk.programs import Answer, TestJvm

RUNNER = "org.apache.beam.runners.portability.testing.TestUniversalRunner"


def run_test(
    jvm: TestJvm, test: str, url: str, client: Client, environment: Sequence[str], timeout_s: float
) -> Outcome:
    """Run one test.

    Args:
        jvm: Runs it; user code, too, with LOOPBACK.
        test: ``CLASS#METHOD``.
        url: Of the job server.
        client: Of the same.
        environment: Options that name the environment of the pipeline's steps.
        timeout_s: For the test.
    """
    # No runner knows this experiment. It tells the jobs of tests with the same name apart.
    mark = f"java_test_{uuid.uuid4().hex}"
    options = [f"--runner={RUNNER}", f"--jobEndpoint={url}", *environment, f"--experiments={mark}"]
    said = jvm.run(test, options, timeout_s)
    jobs = client.jobs_with(mark)
    if said is None:
        for each in jobs:
            client.cancel(each)
        why = f"no end in {timeout_s:g} s, or the JVM died"
        return Outcome(verdict=Verdict.FAILING, why=why, jobs=len(jobs))
    if said.answer is Answer.FAILED:
        return Outcome(verdict=Verdict.FAILING, why=said.why[:2_000], jobs=len(jobs))
    if said.answer is Answer.SKIPPED:
        return Outcome(verdict=Verdict.SKIPPED, why=said.why, jobs=len(jobs))
    if not jobs:
        return Outcome(verdict=Verdict.NO_PIPELINE)
    problems = [problem for each in jobs for problem in missing(client.ended_job(each))]
    if problems:
        return Outcome(verdict=Verdict.UNPROVEN, why="; ".join(problems), jobs=len(jobs))
    return Outcome(verdict=Verdict.SOUND, jobs=len(jobs))
