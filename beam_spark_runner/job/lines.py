"""Chooses where the progress of a pipeline is shown."""

import sys

from beam_spark_runner.job.notebook_line import NotebookLine, display_in_cell
from beam_spark_runner.job.program_start import began_s
from beam_spark_runner.job.progress_line import Line, LoggedLine, ProgressLine


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
