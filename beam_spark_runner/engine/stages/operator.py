"""What a stage does with the elements that have passed its gates: in most stages, one bundle."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from apache_beam.utils.windowed_value import WindowedValue
from typing_extensions import override

from beam_spark_runner.core.callbacks import Callbacks
from beam_spark_runner.engine.stages.context import StageContext
from beam_spark_runner.engine.stages.outcome import Outcome
from beam_spark_runner.engine.stages.siblings import StagesOfTask
from beam_spark_runner.engine.stages.stage_outputs import Outputs
from beam_spark_runner.engine.stages.window_merger import merge_windows
from beam_spark_runner.harness.bundle import Bundle, BundleInput, Settled, SettlingInput
from beam_spark_runner.harness.grouping.sdk_window_fn import MergeWindows
from beam_spark_runner.harness.sdf.checkpoint_handler import RefusingCheckpointHandler
from beam_spark_runner.state.policy import KeyPolicy


class Operator(abc.ABC):
    """Processes the elements of a stage in a task.

    ``enter`` is called before each series of elements that are pushed into ``input``. The last
    call is either ``finish`` or ``abort``.

    Attributes:
        input: takes the elements.
        callbacks: those of bundle finalization that user code has registered so far.
    """

    input: BundleInput

    def __init__(self) -> None:
        self.callbacks: list[Callbacks] = []

    @abc.abstractmethod
    def enter(self) -> None:
        """Prepare for a series of elements."""

    def settle(self) -> None:  # noqa: B027  (most have nothing to do)
        """Finish all that is in flight, once all elements have been taken and timers have fired."""

    @property
    @abc.abstractmethod
    def bundle(self) -> Bundle | None:
        """The bundle that runs now; None: there is none. Threads: any."""

    @abc.abstractmethod
    def progress(self) -> Sequence[bytes]:
        """See ``Bundle.progress``. Threads: any."""

    @abc.abstractmethod
    def finish(self, outcome: Outcome) -> list[bytes]:
        """Process what is left of the input, with the last output.

        Args:
            outcome: what the stage reports of the epoch, to be added to.

        Returns:
            Monitoring infos.
        """

    @abc.abstractmethod
    def abort(self) -> None:
        """End without a result."""


class OneBundle(Operator):
    """Processes all elements in one bundle.

    Args:
        context: the stage.
        policy: what happens to keys; None: the policy of the task.
        has_keys: whether the policy stores keys, and the step has state or timers.

    Attributes:
        keys: the input, which takes keys, too; None: there are no keys.
        settled: how it has settled what was in flight, once it has.
    """

    def __init__(
        self,
        context: StageContext[StagesOfTask],
        policy: KeyPolicy | None = None,
        *,
        has_keys: bool = False,
    ) -> None:
        super().__init__()
        self._context = context
        self._bundle = context.start_bundle(policy)
        self.keys: SettlingInput | None = None
        self.settled = Settled()
        if has_keys:
            self.input = self.keys = _JoinedKeys(self._bundle, context.outputs)
        else:
            self.input = _JoinedInput(self._bundle, context.outputs)

    @property
    @override
    def bundle(self) -> Bundle:
        return self._bundle

    @override
    def enter(self) -> None:
        self._bundle.enter()

    @override
    def settle(self) -> None:
        if self.keys is not None:
            self.settled = self.keys.settle()

    def from_within(self) -> BundleInput:
        """Return an input for elements that are pushed while another bundle may be running."""
        return _InputFromWithin(self._bundle, self.input)

    def window_merger(self) -> MergeWindows | None:
        """Return the function that merges windows, if only an SDK knows how; else None."""
        job, program = self._context.job, self._context.program.window_merger
        if program is None:
            return None
        return self.interrupted_by(lambda windows: merge_windows(job, program, windows))

    def interrupted_by(self, helper: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a function that runs bundles of a helper amid this one."""

        def help_and_return(argument: Any) -> Any:
            try:
                return helper(argument)
            finally:
                self._bundle.enter()

        return help_and_return

    @override
    def progress(self) -> Sequence[bytes]:
        return self._bundle.progress()

    @override
    def finish(self, outcome: Outcome) -> list[bytes]:
        result = self._bundle.finish()
        self.callbacks += result.callbacks
        RefusingCheckpointHandler(self._context.program.name).on_checkpoint(result)
        return [*result.monitoring_infos]

    @override
    def abort(self) -> None:
        self._bundle.abort()


class WithoutBundle(Operator):
    """Takes elements into an input that stores them. No step runs here.

    Attributes:
        input: is closed when the stage ends, with or without a result.
    """

    input: "ClosingInput"

    @override
    def enter(self) -> None: ...

    @property
    @override
    def bundle(self) -> None:
        return None

    @override
    def progress(self) -> Sequence[bytes]:
        return ()

    @override
    def finish(self, outcome: Outcome) -> list[bytes]:
        try:
            self.store(outcome)
        finally:
            self.input.close()
        return []

    @abc.abstractmethod
    def store(self, outcome: Outcome) -> None:
        """Store what the input has taken, and add it to what the stage reports."""

    @override
    def abort(self) -> None:
        self.input.close()


class ClosingInput(BundleInput, Protocol):
    """An input that has temporary files."""

    def close(self) -> None:
        """Delete them."""
        ...


class _JoinedInput:
    """The input of a bundle whose output other stages of the task read. See ``BundleInput``."""

    def __init__(self, bundle: Bundle, outputs: Outputs) -> None:
        self.push = bundle.push
        self.advance_key = bundle.advance_key
        self._bundle = bundle
        self._outputs = outputs

    def flush(self) -> None:
        self._bundle.flush()
        self._outputs.flush_stages()


class _JoinedKeys(_JoinedInput):
    """See ``SettlingInput``."""

    def __init__(self, bundle: Bundle, outputs: Outputs) -> None:
        super().__init__(bundle, outputs)
        keys = cast(SettlingInput, bundle)
        self.begin_key = keys.begin_key
        self.advance_key_until = keys.advance_key_until
        self.fire_until = keys.fire_until
        self.restore, self.settle = keys.restore, keys.settle


class _InputFromWithin:
    """See ``BundleInput``."""

    def __init__(self, bundle: Bundle, joined: BundleInput) -> None:
        self.push: Callable[[list[Any], list[WindowedValue]], None] = bundle.push_from_within
        self.flush = joined.flush
        self.advance_key = joined.advance_key
