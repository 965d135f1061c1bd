"""Levels of a segment as one frame: a task function for each, and the exchanges between them."""

from collections.abc import Sequence

from pyspark.sql import DataFrame

from beam_spark_runner.engine.program import LevelProgram
from beam_spark_runner.engine.task.stored_output import OutputReading
from beam_spark_runner.spark import frames
from beam_spark_runner.spark.driver.anchor import Anchor
from beam_spark_runner.spark.driver.exchange import exchange
from beam_spark_runner.spark.driver.profiled import ProfileFor, map_in_arrow, no_profile
from beam_spark_runner.spark.worker.task_functions import level_function


def level_frame(
    frame: DataFrame,
    programs: Sequence[LevelProgram],
    *,
    exchanges_source: bool,
    has_marks: bool = False,
    anchor: Anchor | None = None,
    reading: OutputReading | None = None,
    profile_for: ProfileFor = no_profile,
) -> DataFrame:
    """Return the frame that runs levels.

    Args:
        frame: the rows that the first level reads.
        programs: the programs of the levels.
        exchanges_source: whether an exchange brings these rows to the tasks of the first level. If
            not, each of their partitions is for one task.
        has_marks: see ``LevelsJob``.
        anchor: where the tasks after an exchange are to run; None: anywhere.
        reading: what the tasks of the first level read themselves, see ``level_function``.
        profile_for: returns the resource profile of a level.
    """
    for number, program in enumerate(programs):
        if program.has_exchange if number else exchanges_source:
            if has_marks and not number:
                frame = frames.spread_marks(frame, program.partitions)
            frame = exchange(
                frame,
                program.partitions,
                tuple(stage.input for stage in program.stages),
                reads_marks_first=program.reads_marks_first,
                anchor=anchor,
            )
        function = level_function(program, None if number else reading)
        frame = map_in_arrow(frame, function, frames.SCHEMA, profile_for(program.resources))
    return frame
