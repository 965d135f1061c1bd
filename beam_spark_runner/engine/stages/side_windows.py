"""Maps windows of a stage's input to windows of a side input."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from apache_beam.coders import Coder
from apache_beam.transforms.window import GlobalWindows, WindowFn
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner.core.time import MIN_US
from beam_spark_runner.engine.program import HelperProgram, WindowMapping
from beam_spark_runner.engine.worker.helper_bundle import run_helper, wrong_answer
from beam_spark_runner.engine.worker.runtime import JobRuntime
from beam_spark_runner.harness.beam.window_mappers import side_window_of
from beam_spark_runner.portable.bounded import MalformedBytesError
from beam_spark_runner.portable.window_mapping import SideWindow, answer_reader, coded_question
from beam_spark_runner.portable.windowing import decode_window_fn
from beam_spark_runner.semantics.timers import expiry_us

MapWindows: TypeAlias = Callable[[Sequence[Any]], Sequence[SideWindow]]
_MAX_KNOWN = 10_000
"""How many windows that an SDK has mapped a worker caches, for each mapping."""


def window_mapper(job: JobRuntime, mapping: WindowMapping, window_coder: Coder) -> MapWindows:
    """Return a function that maps each window of a stage's input to one of a side input.

    Args:
        job: the runtime of the job that the task belongs to.
        mapping: the window mapping of the side input.
        window_coder: the coder of windows of the stage's input.
    """
    program = mapping.helper
    if program is None:
        map_window = side_window_of(mapping.coded_windowing, mapping.pickled, mapping.step)
        return lambda windows: [map_window(window) for window in windows]
    helper = program

    def ask(windows: Sequence[Any]) -> Sequence[SideWindow]:
        coded = [window_coder.encode(window) for window in windows]
        cache = job.side_windows[helper.stage]
        if unknown := [window for window in dict.fromkeys(coded) if window not in cache]:
            cache.update(_answers(job, helper, unknown))
        mapped = [cache[window] for window in coded]
        while len(cache) > _MAX_KNOWN:
            cache.pop(next(iter(cache)))
        return mapped

    return ask


def looked_up_from_us(
    job: JobRuntime, mapping: WindowMapping, watermark_us: int, lateness_us: int
) -> int:
    """Return the expiry of the earliest window of a side input that may still be looked up.

    The earliest window of the stage's input that has not expired maps to it: later windows map to
    no earlier ones.

    Args:
        job: the runtime of the job that the task belongs to.
        mapping: the window mapping of the side input, with the windowing of the stage's input.
        watermark_us: the event time of the earliest element that may still look it up.
        lateness_us: the allowed lateness of the stage's input, in microseconds.

    Returns:
        Event time in microseconds.
    """
    window_fn = decode_window_fn(mapping.coded_main)
    at = Timestamp(micros=max(MIN_US, watermark_us - lateness_us))
    windows = window_fn.assign(WindowFn.AssignContext(at))
    first = min(windows, key=lambda window: window.max_timestamp())
    (side,) = window_mapper(job, mapping, window_fn.get_window_coder())([first])
    return expiry_us(side.end_us, lateness_us)


def _answers(
    job: JobRuntime, program: HelperProgram, windows: Sequence[bytes]
) -> dict[bytes, SideWindow]:
    """Have an SDK harness map windows, in a separate bundle.

    Raises:
        BundleFailedError: the mapping function raised.
        FnApiProtocolError: the SDK did not answer all questions.
    """
    questions = [GlobalWindows.windowed_value(coded_question(window)) for window in windows]
    answers, _ = run_helper(job, program, questions)
    read_answer = answer_reader(program.description)
    try:
        mapped = dict(read_answer(answer.value) for answer in answers)
    except MalformedBytesError as error:
        raise wrong_answer(program, str(error)) from error
    if mapped.keys() != set(windows):
        answered = len(mapped.keys() & set(windows))
        raise wrong_answer(
            program,
            f"of {len(windows)} windows, {answered} are mapped to windows of the side input, and "
            f"{len(mapped) - answered} windows are mapped that nobody has asked about",
        )
    return mapped
