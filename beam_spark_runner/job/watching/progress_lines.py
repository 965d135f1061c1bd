"""What a job shows on its progress line, in batch and in epochs, and after its end."""

import contextlib
from collections.abc import Callable, Sequence

from apache_beam.runners.runner import PipelineState

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import SegmentId
from beam_spark_runner.core.table_steps import READ_TABLE
from beam_spark_runner.driving.run_context import RunMetrics
from beam_spark_runner.driving.session import Session
from beam_spark_runner.graph.facts import users_steps
from beam_spark_runner.job.prepare.prepare import PreparedJob
from beam_spark_runner.job.watching.progress_line import Line, Parts
from beam_spark_runner.job.watching.stream_watch import StreamWatch
from beam_spark_runner.observing.batch_line import BatchLine
from beam_spark_runner.observing.last_line import PipelineEnd, last_line
from beam_spark_runner.observing.stream_line import StreamLine
from beam_spark_runner.plan.picture import picture
from beam_spark_runner.portable.monitoring import element_counts
from beam_spark_runner.portable.written_files import written_files
from beam_spark_runner.spark.session.handle import SessionHandle
from beam_spark_runner.spark.session.spark_progress import TaskCounter, watch

_SOURCES = (urns.SDF_PROCESS_SIZED_ELEMENT_AND_RESTRICTIONS, urns.TEST_STREAM, READ_TABLE)


class JobProgress:
    """Shows the progress of one job on a line.

    Threads: one calls ``begin``, ``begin_segment`` and ``end``. No method raises.

    Args:
        line: Where it is shown.
        prepared: The job.
        tally: Its metrics.
    """

    def __init__(self, line: Line, prepared: PreparedJob, tally: RunMetrics) -> None:
        self._line, self._prepared, self._tally = line, prepared, tally
        self._plan = prepared.plan
        self._batch = BatchLine(self._plan)
        self._counter: TaskCounter | None = None
        sources = (
            source for source in self._plan.graph.transforms.values() if source.urn in _SOURCES
        )
        self._source_outputs = frozenset(
            str(id_) for source in sources for id_ in source.outputs.values()
        )

    def begin(
        self,
        session: Session,
        stream: StreamWatch,
        *,
        deferred: Callable[[], int],
        attempted: Callable[[], Sequence[bytes]],
    ) -> None:
        """Show the job from now on.

        Args:
            session: The session in which it runs.
            stream: The status of a streaming pipeline.
            deferred: Returns the number of restrictions that are reported as waiting.
            attempted: Returns the metrics of all attempts: serialised MonitoringInfos.
        """
        if self._plan.is_streaming:
            epochs = StreamLine(users_steps(self._plan.graph))
            self._line.show(lambda: stream.parts(epochs), lambda: picture(self._plan))
            return
        if isinstance(session, SessionHandle):
            # Without it, it shows no progress of Spark's tasks.
            with contextlib.suppress(Exception):
                job_id = self._prepared.job_id
                self._counter = watch(session.spark, job_id, is_connect=session.is_connect)
        self._line.show(
            lambda: self._parts(deferred, attempted),
            lambda: picture(self._plan, self._batch.fractions()),
        )

    def begin_segment(self, segment: SegmentId) -> None:
        """Take note that a segment of a batch pipeline begins."""
        self._batch.begin_segment(segment, self._line.took_s())

    def show_continued(self, after: str) -> None:
        """Say where a pipeline continues.

        Args:
            after: What earlier runs have committed last, for people.
        """
        config = self._prepared.config
        folder = config.checkpoint_dir or config.savepoint_path
        self._line.say(f"continues after {after}" + (f" from {folder}" if folder else ""))

    def end(self, state: str, epoch: int | None, *, is_all_removed: bool) -> None:
        """Replace the line by one that remains.

        Args:
            state: The last state.
            epoch: The last epoch that a streaming pipeline has committed. None: none.
            is_all_removed: Whether nothing is stored that a later run may continue from.
        """
        if state == PipelineState.DONE:
            self._batch.finish()
        self._line.close()
        outcome = PipelineEnd(
            state=state, took_s=self._line.took_s(), is_all_removed=is_all_removed
        )
        with contextlib.suppress(Exception):  # what is known of its work is not worth an error
            if state in (PipelineState.DONE, PipelineState.DRAINED):
                outcome = self._successful(state, epoch)
        self._line.say(*last_line(outcome))
        with contextlib.suppress(Exception):
            if self._counter is not None:
                self._counter.close()

    def _successful(self, state: str, epoch: int | None) -> PipelineEnd:
        counts = element_counts(self._tally.committed)
        files = []
        if self._prepared.was_built_here and not self._plan.is_streaming:
            files = [*written_files(self._plan.graph, counts)]
        return PipelineEnd(
            state=state,
            took_s=self._line.took_s(),
            epoch=epoch if self._plan.is_streaming else None,
            read=sum(counts.get(collection, 0) for collection in self._source_outputs),
            files=files,
            spark_jobs=None if self._counter is None else self._counter.count_jobs(),
        )

    def _parts(
        self, deferred: Callable[[], int], attempted: Callable[[], Sequence[bytes]]
    ) -> Parts:
        counts = None
        with contextlib.suppress(Exception):  # Spark may be stopping, or gone
            counts = self._counter.counts() if self._counter is not None else None
        by_collection = element_counts(attempted())
        return self._batch.parts(
            counts,
            elements=sum(by_collection.get(collection, 0) for collection in self._source_outputs),
            deferred=deferred(),
            now_s=self._line.took_s(),
        )
