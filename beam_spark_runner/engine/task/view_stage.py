"""A stage that gathers a side input, for the steps that look it up in later epochs."""

import contextlib
import functools
import uuid
from collections.abc import Callable, Iterable, Sequence

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.engine.rows.cursor import RowCursor
from beam_spark_runner.engine.rows.group_reader import GroupReader
from beam_spark_runner.engine.rows.view_writer import pane_coder
from beam_spark_runner.engine.side_inputs.panes import PaneId, PanesOfView
from beam_spark_runner.engine.task.epoch_files import delta_files, scratch_folder
from beam_spark_runner.engine.task.epoch_stage import EpochStage
from beam_spark_runner.engine.task.open_stage import charged_to
from beam_spark_runner.harness.bundle import Bundle
from beam_spark_runner.harness.due import fire_due
from beam_spark_runner.recovery.sweep import view_name
from beam_spark_runner.semantics.timers import expiry_us


class ViewStage(EpochStage):
    """Gathers a side input: stores its windows until they fire, and writes the panes that do."""

    def _open_input(self, now_us: Callable[[], int]) -> None:
        stages = self._stages
        self._number = stages.epoch.number
        self._epoch = stages.epoch_of(self.program)
        self._panes = PanesOfView(
            self.program.input,
            self._harness.input_coder,
            most_element_bytes=self._level.limits.max_element_bytes,
        )
        self._reader: GroupReader = GroupReader(
            self.program.input,
            pane_coder(self._harness.input_coder),
            self._panes,
            self._logs,
            self._epoch,
        )

    def read(self, cursor: RowCursor) -> None:
        """See ``OpenStage.read``."""
        with charged_to(self.program.name):
            self._reader.read(cursor)

    def run_due(self) -> None:
        """Fire the panes that are due."""
        with charged_to(self.program.name):
            fire_due(self._epoch.store, self._epoch.now, self._reader.fire)
            self._reader.finish_epoch()

    def finish(self) -> Iterable[bytes]:
        """Write the panes that have fired."""
        with contextlib.closing(self._panes), charged_to(self.program.name):
            if places := self._panes.places():
                self.views = self._written(places)
        return ()

    def _written(self, fired: Sequence[tuple[PaneId, int]]) -> Sequence[reports_pb2.View]:
        places, dest = self._level.shards, self.program.input.dest
        # The task has several parts if there were more partitions when elements came.
        files: dict[bytes, str] = {}
        for part in {place.part for place, _ in fired}:
            name = view_name(places.lineage, self._number, int(dest), uuid.uuid4().hex)
            put = functools.partial(delta_files(places).put, name)
            self._panes.write(part, name, scratch_folder(places), put)
            files[part] = name
        return [
            reports_pb2.View(
                dest=dest,
                window=place.window,
                part=place.part,
                file=files[place.part],
                expires_us=expiry_us(end_us, self.program.in_epochs.lateness_us),
            )
            for place, end_us in fired
        ]

    def progress(self) -> Sequence[bytes]:
        """See ``OpenStage.progress``: no step runs here."""
        return ()

    @property
    def bundle(self) -> Bundle | None:
        """See ``OpenStage.bundle``: no step runs here."""
        return None

    def abort(self) -> None:
        """See ``OpenStage.abort``."""
        self._panes.close()
