"""Chooses where the progress of a pipeline is shown; ends it if the pipeline does not begin."""

import sys

from apache_beam.runners.runner import PipelineState

from beam_spark_runner.job.watching.notebook_line import NotebookLine, display_in_cell
from beam_spark_runner.job.watching.program_start import began_s
from beam_spark_runner.job.watching.progress_line import Line, LoggedLine, ProgressLine
from beam_spark_runner.observing.last_line import PipelineEnd, last_line


def line_for(progress: str, *, may_use_cell: bool = True) -> Line | None:
    """Return where ``--progress`` has a pipeline shown that starts now. None: nowhere.

    Args:
        progress: The option.
        may_use_cell: Whether the cell of a notebook is free for it.
    """
    if progress == "off":
        return None
    since_s, err = began_s(), sys.stderr
    if may_use_cell and (show := display_in_cell()) is not None:
        return NotebookLine(show, since_s)
    is_terminal = err is not None and not err.closed and err.isatty()
    if err is None or not (is_terminal or progress == "on"):
        return LoggedLine(since_s)
    return ProgressLine(err, since_s)


def end_line(line: Line | None, error: BaseException) -> None:
    """Remove the line of a pipeline that has not begun, because of an error or a signal.

    The line of one that has begun is ended by its job.
    """
    if line is None or line.is_closed:
        return
    line.close()
    if not isinstance(error, Exception):  # which nothing else says
        state, took_s = PipelineState.CANCELLED, line.took_s()
        line.say(*last_line(PipelineEnd(state=state, took_s=took_s, is_all_removed=False)))
