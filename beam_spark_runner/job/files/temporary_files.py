"""Removes the temporary files of sinks at the end of a job."""

from apache_beam.runners.runner import PipelineState

from beam_spark_runner.job.prepare.prepare import PreparedJob
from beam_spark_runner.portable.sinks import remove_temporary_files

_SUCCESSES = (PipelineState.DONE, PipelineState.DRAINED)


def remove_temporary_files_of(
    job: PreparedJob, began_s: float, state: str, *, was_saved: bool
) -> None:
    """Remove the temporary files of sinks, unless a later run needs them.

    A checkpoint or savepoint may name temporary files that a later run has yet to rename. Those of
    a pipeline that was built in another process stay, since its sinks must not be unpickled here.

    Args:
        job: The job, which has ended.
        began_s: When it began, Unix time.
        state: Its last state.
        was_saved: Whether a savepoint of it was made.
    """
    has_succeeded = state in _SUCCESSES
    # Starts that died may have begun writes that later ones have begun again.
    has_one_start = not (job.plan.is_streaming or job.can_be_continued)
    if job.was_built_here and (has_succeeded or not may_be_continued(job, was_saved=was_saved)):
        remove_temporary_files(
            job.plan.graph,
            began_s,
            has_succeeded=has_succeeded,
            has_written_all=has_succeeded and has_one_start,
        )


def may_be_continued(job: PreparedJob, *, was_saved: bool) -> bool:
    """Whether a later run may continue a job that has ended."""
    is_saved = was_saved or job.config.savepoint_schedule is not None
    return job.can_be_continued or (job.plan.is_streaming and is_saved)
