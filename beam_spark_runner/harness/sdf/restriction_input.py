"""Base class of the inputs of stages with a splittable DoFn at the root."""

from collections.abc import Callable, Sequence

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.harness.bundle import Bundle, BundleResult
from beam_spark_runner.harness.sdf.checkpoint_handler import StateAndTimerBundleCheckpointHandler
from beam_spark_runner.harness.sdf.timed_split import TimedSplit


class RestrictionInput:
    """Runs one bundle after another over the restrictions that it reads.

    Args:
        start_bundle: Begins a bundle.
        on_completed: Gets the result of each finished bundle, before its residuals are
            scheduled.
        handler: Schedules residuals.
    """

    def __init__(
        self,
        start_bundle: Callable[[], Bundle],
        on_completed: Callable[[BundleResult], None],
        handler: StateAndTimerBundleCheckpointHandler,
    ) -> None:
        self._start_bundle = start_bundle
        self._on_completed = on_completed
        self._handler = handler
        self._bundle: Bundle | None = None
        self._checkpoint: TimedSplit | None = None  # of the bundle

    def advance_key(self) -> None:
        """See ``BundleInput.advance_key``. ``graph.passes.validate`` refuses keyed stages here."""
        raise InvariantError("a splittable DoFn was given keys")

    def flush(self) -> None:
        """See ``BundleInput.flush``: nothing is buffered."""

    def progress(self) -> Sequence[bytes]:
        """See ``Bundle.progress``: that of the open bundle, if there is one."""
        bundle = self._bundle
        return () if bundle is None else bundle.progress()

    @property
    def bundle(self) -> Bundle | None:
        """The open bundle; None: there is none."""
        return self._bundle

    def _finish(self) -> None:
        """Finish the bundle, if one is open, and schedule its residuals."""
        if self._bundle is None:
            return
        result = self._bundle.finish()
        checkpoint = self._end_checkpoint()
        self._bundle = None
        self._on_completed(result)
        if checkpoint is not None:
            if checkpoint.error is not None:
                raise checkpoint.error
            self._handler.on_checkpoint(checkpoint)
        self._handler.on_checkpoint(result)
        for residual in result.deferred:
            self._handler.schedule(residual)

    def _end_checkpoint(self) -> TimedSplit | None:
        checkpoint, self._checkpoint = self._checkpoint, None
        if checkpoint is not None:
            checkpoint.stop()
        return checkpoint

    def abort(self) -> None:
        """Abort the open bundle, if there is one."""
        self._end_checkpoint()
        if self._bundle is not None:
            self._bundle.abort()
