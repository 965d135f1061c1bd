"""Finds the windows of a side input for those of a stage's input."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from apache_beam.coders import Coder
from apache_beam.transforms.window import GlobalWindows, WindowFn
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner.core.errors import FnApiProtocolError
from beam_spark_runner.core.time import MIN_US
from beam_spark_runner.harness.beam.side_windows import side_window_of
from beam_spark_runner.portable.window_mapping import SideWindow, answer_reader, coded_question
from beam_spark_runner.portable.windowing import decode_window_fn
from beam_spark_runner.semantics.timers import expiry_us
from beam_spark_runner.spark.program import StageProgram, WindowMapping
from beam_spark_runner.spark.task.helper_bundle import run_helper
from beam_spark_runner.spark.task.worker_runtime import JobRuntime

MapWindows: TypeAlias = Callable[[Sequence[Any]], Sequence[SideWindow]]
_MOST_KNOWN = 10_000
"""Windows of which a worker remembers what an SDK has said."""


def window_mapper(job: JobRuntime, mapping: WindowMapping, window_coder: Coder) -> MapWindows:
    """Return what maps windows of a stage's input to those of a side input, one for each.

    Args:
        job: of the task.
        mapping: to the windows of the side input.
        window_coder: of the stage's input.
    """
    program = mapping.asks
    if program is None:
        map_window = side_window_of(mapping.coded_windowing, mapping.pickled, mapping.step)
        return lambda windows: [map_window(window) for window in windows]
    asked = program

    def ask(windows: Sequence[Any]) -> Sequence[SideWindow]:
        coded = [window_coder.encode(window) for window in windows]
        known = job.side_windows[asked.stage]
        if unknown := [window for window in dict.fromkeys(coded) if window not in known]:
            known.update(_answers(job, asked, unknown))
        found = [known[window] for window in coded]
        while len(known) > _MOST_KNOWN:
            known.pop(next(iter(known)))
        return found

    return ask


def looked_up_from_us(
    job: JobRuntime, mapping: WindowMapping, watermark_us: int, lateness_us: int
) -> int:
    """Return when the first window of a side input expires that may still be looked up.

    It is that to which the first window maps that has not expired: later ones map to no earlier
    ones.

    Args:
        job: of the task.
        mapping: to the windows of the side input; it has the windowing of the stage's input.
        watermark_us: no element that may still look up is earlier.
        lateness_us: how long windows of the stage's input live on after their end.

    Returns:
        Event time.
    """
    window_fn = decode_window_fn(mapping.coded_main)
    at = Timestamp(micros=max(MIN_US, watermark_us - lateness_us))
    windows = window_fn.assign(WindowFn.AssignContext(at))
    first = min(windows, key=lambda window: window.max_timestamp())
    (side,) = window_mapper(job, mapping, window_fn.get_window_coder())([first])
    return expiry_us(side.end_us, lateness_us)


def _answers(
    job: JobRuntime, program: StageProgram, windows: Sequence[bytes]
) -> dict[bytes, SideWindow]:
    """Ask an SDK harness in a separate bundle.

    Raises:
        BundleFailedError: the function raised.
        FnApiProtocolError: the SDK did not answer all questions.
    """
    questions = [GlobalWindows.windowed_value(coded_question(window)) for window in windows]
    answers, _ = run_helper(job, program, questions)
    read = answer_reader(program.description)
    found = dict(read(answer.value) for answer in answers)
    if found.keys() != set(windows):
        raise FnApiProtocolError(
            f"{program.name}: asked for the side input's window of {len(windows)} windows, the SDK "
            f"has answered for {len(found)}"
        )
    return found
