"""Merges windows by a WindowFn that only its SDK knows, in separate bundles."""

from collections.abc import Sequence

from apache_beam.transforms.window import GlobalWindows

from beam_spark_runner.portable.window_merging import coded_question, decoded_answer
from beam_spark_runner.spark.program import StageProgram
from beam_spark_runner.spark.task.helper_bundle import run_helper
from beam_spark_runner.spark.task.worker_runtime import JobRuntime


def merge_windows(
    job: JobRuntime, program: StageProgram, windows: Sequence[bytes]
) -> list[tuple[bytes, list[bytes]]]:
    """See ``harness.grouping.sdk_window_fn.MergeWindows``.

    Args:
        job: the runtime of the job that the task belongs to.
        program: see ``StageProgram.window_merger``.
        windows: the encoded windows of one key.

    Raises:
        BundleFailedError: the WindowFn raised.
    """
    question = GlobalWindows.windowed_value(coded_question(windows))
    (answer,), _ = run_helper(job, program, [question])
    return decoded_answer(answer.value)
