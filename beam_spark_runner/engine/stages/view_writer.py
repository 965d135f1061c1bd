"""Gathers a side input, for the steps that look it up in later epochs."""

import functools
import uuid
from collections.abc import Sequence

from typing_extensions import override

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.engine.epoch_files import folder_of_epochs, scratch_folder
from beam_spark_runner.engine.side_inputs.view_panes import PaneId, PanesOfView
from beam_spark_runner.engine.stages.context import StageContext
from beam_spark_runner.engine.stages.operator import WithoutBundle
from beam_spark_runner.engine.stages.outcome import Outcome
from beam_spark_runner.engine.stages.siblings import StagesOfEpoch
from beam_spark_runner.recovery.sweep import view_name
from beam_spark_runner.semantics.timers import expiry_us


class ViewWriter(WithoutBundle):
    """Writes the panes of a side input that fire into files.

    Args:
        context: the stage.
    """

    input: PanesOfView

    def __init__(self, context: StageContext[StagesOfEpoch]) -> None:
        super().__init__()
        self._program = context.program
        self._places = context.level.shards
        self._number = context.task.epoch.number
        self.input = PanesOfView(
            context.program.input,
            context.input_coder,
            max_element_bytes=context.level.limits.max_element_bytes,
        )

    @override
    def store(self, outcome: Outcome) -> None:
        if panes := self.input.last_panes():
            outcome.views = self._write(panes)

    def _write(self, panes: Sequence[tuple[PaneId, int]]) -> Sequence[reports_pb2.View]:
        places, dest = self._places, self._program.input.dest
        # The task has several parts if there were more partitions when elements came.
        files: dict[bytes, str] = {}
        for part in {pane_id.part for pane_id, _ in panes}:
            name = view_name(places.lineage, self._number, int(dest), uuid.uuid4().hex)
            store = functools.partial(folder_of_epochs(places).put, name)
            self.input.write(part, name, scratch_folder(places), store)
            files[part] = name
        return [
            reports_pb2.View(
                dest=dest,
                window=pane_id.window,
                part=pane_id.part,
                file=files[pane_id.part],
                expires_us=expiry_us(end_us, self._program.in_epochs.lateness_us),
            )
            for pane_id, end_us in panes
        ]
