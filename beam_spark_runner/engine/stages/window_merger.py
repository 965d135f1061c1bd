"""Merges windows by a WindowFn that only its SDK knows, in separate bundles."""

from collections.abc import Sequence

from apache_beam.transforms.window import GlobalWindows

from beam_spark_runner.engine.program import HelperProgram
from beam_spark_runner.engine.worker.helper_bundle import run_helper, wrong_answer
from beam_spark_runner.engine.worker.runtime import JobRuntime
from beam_spark_runner.portable.bounded import MalformedBytesError
from beam_spark_runner.portable.window_merging import coded_question, decoded_answer


def merge_windows(
    job: JobRuntime, program: HelperProgram, windows: Sequence[bytes]
) -> list[tuple[bytes, list[bytes]]]:
    """See ``harness.grouping.sdk_window_fn.MergeWindows``.

    Args:
        job: the runtime of the job that the task belongs to.
        program: see ``StageProgram.window_merger``.
        windows: the encoded windows of one key.

    Raises:
        BundleFailedError: the WindowFn raised.
        FnApiProtocolError: the SDK did not answer once, or with other windows than asked about.
    """
    question = GlobalWindows.windowed_value(coded_question(windows))
    answers, _ = run_helper(job, program, [question])
    if len(answers) != 1:
        raise wrong_answer(program, f"there are {len(answers)} answers to one question")
    try:
        merged = decoded_answer(answers[0].value)
    except MalformedBytesError as error:
        raise wrong_answer(program, str(error)) from error
    parts = [part for _, parts in merged for part in parts]
    if unknown := set(parts).difference(windows):
        raise wrong_answer(program, f"{len(unknown)} windows are merged that are not of the key")
    if len(set(parts)) != len(parts):
        raise wrong_answer(program, "a window is merged into two others")
    return merged
