"""The stages of this Spark worker, each on the harness that its environment asks for.

They are kept from task to task, until their job ends: the driver says so by the backchannel. Where
it cannot, they are torn down when a task of another job arrives.
"""

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.harness import backchannel, embedded
from beam_spark_runner.harness.bundle import StageHarness
from beam_spark_runner.harness.remote import RemoteStage
from beam_spark_runner.harness.running_tasks import RunningTasks
from beam_spark_runner.harness.sdk_workers import HarnessSettings, sdk_workers
from beam_spark_runner.portable.descriptor import StageDescription

_remote: dict[tuple[str, int], RemoteStage] = {}


def stage_for(
    job_id: str,
    stage_id: int,
    name: str,
    description: StageDescription,
    side_inputs: frozenset[str],
    settings: HarnessSettings | None,
) -> StageHarness:
    """Return the stage, kept from an earlier task of this worker where there was one.

    Args:
        job_id: stages of other jobs are dropped.
        stage_id: of the plan.
        name: for messages.
        description: says in which environment it runs.
        side_inputs: ids of those that it reads.
        settings: of SDK harnesses; None where the job has no code outside of Spark's workers.
    """
    for key in list(_remote):
        if key[0] != job_id:
            _remote.pop(key, None)
    if not description.coded_environment:
        stage = embedded.stage_for(job_id, stage_id, name, description, side_inputs)
        if stage.may_tear_down:
            backchannel.current.await_end()
        return stage
    if settings is None:
        raise InvariantError(f"{name} needs an SDK harness, and nothing is said of it")
    key = (job_id, stage_id)
    if key not in _remote:
        _remote[key] = RemoteStage(name, description, settings, stage_id)
    backchannel.current.await_end()
    return _remote[key]


def discard(job_id: str, stage_id: int) -> None:
    """Tear a stage down whose bundle failed: its DoFns are in no known state."""
    if _remote.pop((job_id, stage_id), None) is None:
        embedded.discard(job_id, stage_id)


def _tear_down(job_id: str) -> None:
    """Tear down all stages of a job, and end the SDK harnesses that wait for no other one."""
    for key in list(_remote):
        if key[0] == job_id:
            _remote.pop(key, None)
    embedded.discard_job(job_id)
    sdk_workers.end_job(job_id)


tasks = RunningTasks(_tear_down)
"""Those of this process."""
