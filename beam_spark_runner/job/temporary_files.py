"""When a job has ended: whether the temporary files of its sinks go with it."""

from apache_beam.runners.runner import PipelineState

from beam_spark_runner.job.prepare import PreparedJob
from beam_spark_runner.portable.sinks import remove_temporary_files

_SUCCESSES = (PipelineState.DONE, PipelineState.DRAINED)


def remove_temporary_files_of(
    job: PreparedJob, began_s: float, state: str, *, was_saved: bool
) -> None:
    """Remove what sinks have left, unless a later run needs it.

    What a streaming pipeline has committed names temporary files that it has yet to rename.

    Args:
        job: which has ended.
        began_s: when it began, Unix time.
        state: its last one.
        was_saved: there is a savepoint of it.
    """
    streams, has_succeeded = job.plan.streams, state in _SUCCESSES
    may_be_continued = streams and (was_saved or job.config.checkpoint_dir is not None)
    if job.was_built_here and (has_succeeded or not may_be_continued):
        remove_temporary_files(
            job.plan.graph, began_s, has_written_all=has_succeeded and not streams
        )
