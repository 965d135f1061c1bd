"""Operations that process chunks of elements, one step at a time.

Beam's operations pass each element through all steps before they take the next:
half a microsecond per step goes into state samplers, counters and windowed values.
Most ParDos (Map, FlatMap, Filter, plain DoFns) need only the element's value, and perhaps
arguments that are the same for all elements. They can process a list of values, and
their consumers the list of results.

The life cycle, user metrics, element counts, sampled sizes, and the step's name in errors
are as with Beam's operations. Only the order in which steps process the elements of a
bundle is different; Beam does not specify it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import apache_beam as beam
from apache_beam.coders import Coder, coder_impl
from apache_beam.pvalue import TaggedOutput
from apache_beam.runners import common
from apache_beam.runners.worker import operations
from apache_beam.transforms import core
from apache_beam.transforms.window import TimestampedValue, WindowFn
from apache_beam.utils.windowed_value import WindowedValue
from typing_extensions import override

from beam_spark_runner.harness.beam.accumulators import Accumulators
from beam_spark_runner.harness.beam.chunk_edge import ChunkEdge
from beam_spark_runner.harness.beam.current_element import ChargedChunk
from beam_spark_runner.harness.beam.element_sizes import KnownSizes
from beam_spark_runner.harness.beam.fused_run import FusedRun, closed_of
from beam_spark_runner.harness.beam.result_filter import SPECIAL, SendOne
from beam_spark_runner.harness.beam.step_choice import Arguments, step_for
from beam_spark_runner.harness.beam.step_loops import AssigningWindows, Combined, Mapped, Step
from beam_spark_runner.harness.beam.window_assignment import Assignment
from beam_spark_runner.harness.failures import ChargedTo, charge, note_element
from beam_spark_runner.harness.values.constants import ATOMS, Kind, is_constant
from beam_spark_runner.harness.values.encoded_keys import Places

_MAX_ATOMS = 512
"""Of values without parts. A step takes some 20 microseconds for a chunk, whatever its length."""

_MAX_VALUES = 128
"""Of other values: many live tuples and dicts cost more time in the garbage collector."""

_MAX_BYTES = 1 << 20
_STAMPED = {TimestampedValue}
_Chunk = tuple[list[Any], list[WindowedValue]]
"""Values and their origins."""


class ChunkedParDo(operations.DoOperation):  # type: ignore[misc]
    """A ParDo that takes chunks from its producers and gives chunks to its consumers.

    Immutable single elements of a producer are buffered until there are enough for a chunk,
    or until ``flush``.

    Attributes:
        may_wait: Whether elements are buffered; see ``held_open``.
    """

    may_wait = True

    def prepare(
        self,
        fn: core.DoFn,
        arguments: Callable[[], Arguments],
        windowing: core.Windowing,
        input_coder: coder_impl.CoderImpl,
        output_tags: Sequence[str],
        consumers: Mapping[str, Sequence[operations.Operation]],
    ) -> None:
        """Set what ``DoOperation`` has in private attributes; called before ``setup``.

        ``arguments``: called once a bundle has begun, when side inputs can be read.
        """
        self._fn = self.users_fn = fn
        self._arguments = arguments
        self._windowing = windowing
        self._assignment = Assignment(windowing.windowfn)
        self._input_coder = KnownSizes(input_coder)
        self._output_tags = output_tags
        self._consumers = consumers
        self._values: list[Any] = []
        self._origins: list[WindowedValue] = []
        self._input_limit = 1

    def setup(self, data_sampler: Any = None) -> None:
        super().setup(data_sampler)
        main = main_tag(self._output_tags)
        receivers = dict(zip(self._output_tags, self.receivers, strict=True))
        self._sizes = {
            tag: receiver.opcounter.mean_byte_counter for tag, receiver in receivers.items()
        }
        self._outputs = output_handler(self, self._windowing, self._output_tags)
        self._edge = ChunkEdge(
            receivers[main],
            self._consumers.get(main, ()),
            assigns_windows=isinstance(self._fn, WindowInto),
        )
        self._main = main
        self._edges = {
            tag: ChunkEdge(receiver, self._consumers.get(tag, ()))
            for tag, receiver in receivers.items()
            if tag != main
        }
        self.send_one = self._edge.sender(self._send_special)
        self._step: Step | None = None
        self._fused: FusedRun | None = None
        self._has_looked_downstream = False

    def process(self, element: WindowedValue) -> None:
        value = element.value
        if not (self.may_wait and is_constant(value)):
            self.process_one(value, element)
            return
        self._values.append(value)
        self._origins.append(element)
        if len(self._values) >= self._input_limit:
            self.flush()

    def flush(self) -> None:
        """Process the buffered elements."""
        values, origins = self._values, self._origins
        if not values:
            return
        self._values, self._origins = [], []
        size, _ = self._input_coder.get_estimated_size_and_observables(origins[-1])
        self._input_limit = _grown(self._input_limit, size or 0, values[-1])
        self.process_chunk(values, origins, Kind.CONSTANT)

    def finish(self) -> None:
        self.flush()
        super().finish()
        self._edge.finish()

    def process_chunk(self, values: list[Any], origins: list[WindowedValue], kind: Kind) -> None:
        """Process values; each has the timestamp, windows and pane of its origin."""
        step = self._step or self._first_step()
        if self._fused is not None and (done := self._fused.process(values, origins, kind)):
            values, origins = values[done:], origins[done:]
            if not values:
                return
        with self.scoped_process_state, ChargedChunk(self.step_name, step.current_element):
            step.run(values, origins, kind, self)
        if not self._has_looked_downstream:  # only now have the next steps chosen their loops
            self._has_looked_downstream = True
            self._fused = self._run_of_steps()

    def _run_of_steps(self) -> FusedRun | None:
        """Return the run that begins with this step; None: the next one cannot be part of it."""
        run: list[ChunkedParDo] = []
        operation: Any = self
        while type(operation) is ChunkedParDo and (closed := closed_of(operation._step)):
            run.append(operation)
            operation = None if closed.may_stamp else operation._edge.only_reader()
        if len(run) < 2:
            return None
        for each in run[1:]:
            each._fused = None  # a chunk that takes the first step alone takes all others alone
        return FusedRun(
            [cast("Mapped", each._step) for each in run],
            [each._edge.count for each in run[:-1]],
            [each.scoped_process_state for each in run],
            run[-1],
        )

    def process_one(self, value: Any, origin: WindowedValue) -> None:
        """Process a value at once. The first call replaces this method by the step's."""
        self._first_step()
        self.process_one(value, origin)

    def _first_step(self) -> Step:
        """Choose the step's loop. Later bundles see the same side inputs, as in Beam's harness."""
        with ChargedTo(self.step_name):  # side inputs are read, and their coders may raise
            step: Step = (
                AssigningWindows(self._fn.window_fn)
                if isinstance(self._fn, WindowInto)
                else step_for(self._fn, self._arguments())
            )
        self._step = step
        self.process_one = one_by_one(self, step)  # type: ignore[assignment, method-assign]
        return step

    def send(
        self, results: list[Any], origins: list[WindowedValue], kind: Kind, *, are_values: bool
    ) -> None:
        """See ``Output.send``: passes the step's results to its readers."""
        parts: Mapping[str, _Chunk] = {self._main: (results, origins)}
        if not are_values:
            kinds = set(map(type, results))
            if kinds == _STAMPED:
                parts = {self._main: self._with_their_own_times(results, origins)}
            elif any(issubclass(kind, SPECIAL) for kind in kinds):
                parts = self._by_tag(results, origins)
                if not parts:
                    for result, origin in zip(results, origins, strict=True):
                        self._outputs.handle_process_outputs(origin, (result,))
                    return
        for tag, (values, their_origins) in parts.items():
            edge = self._edges.get(tag, self._edge)
            with ChargedTo(self.step_name):  # the results may be those of an earlier element
                edge.send(values, their_origins, kind)
        step = self._step
        assert step is not None
        size = 0.0
        for tag in parts:
            _, total, count, _, _ = self._sizes[tag].value()
            size = max(size, total / max(count, 1))
        step.limit = _grown(step.limit, size, results[-1])

    def _by_tag(self, results: list[Any], origins: list[WindowedValue]) -> dict[str, _Chunk]:
        """Return the results by their tags; none, if Beam has to unwrap or refuse some of them."""
        parts: dict[str, _Chunk] = {}
        main, edges = self._main, self._edges
        for result, origin in zip(results, origins, strict=True):
            tag, value = main, result
            if type(result) is TaggedOutput:
                tag, value = result.tag, result.value
                if type(tag) is not str or tag not in edges:
                    return {}
            if isinstance(value, SPECIAL):
                return {}
            if tag not in parts:
                parts[tag] = [], []
            values, their_origins = parts[tag]
            values.append(value)
            their_origins.append(origin)
        return parts

    def _send_special(self, result: Any, origin: WindowedValue) -> None:
        self.send([result], [origin], Kind.OWN, are_values=False)

    def _with_their_own_times(self, results: list[Any], origins: list[WindowedValue]) -> _Chunk:
        """Unwrap TimestampedValues, whose windows are assigned by their own times, as in Beam."""
        windows_of = self._assignment.windows_of
        stamped = []
        for result, origin in zip(results, origins, strict=True):
            element = WindowedValue(result.value, result.timestamp, ())
            element.windows = windows_of(result.value, element, None)
            if len(origin.windows) != 1:
                element.windows = tuple(element.windows) * len(origin.windows)
            stamped.append(element)
        return [element.value for element in stamped], stamped


class ChunkedPrecombine(operations.PGBKCVOperation):  # type: ignore[misc]
    """A lifted combiner before the shuffle."""

    def prepare(
        self,
        key_coder: Coder,
        accumulator_coder: coder_impl.CoderImpl,
        consumers: Mapping[str, Sequence[operations.Operation]],
    ) -> None:
        """Set what ``PGBKCVOperation`` has in private attributes; called before ``setup``."""
        self._key_coder = key_coder
        self._accumulator_coder = accumulator_coder
        self._readers = [reader for readers in consumers.values() for reader in readers]

    def setup(self, data_sampler: Any = None) -> None:
        super().setup(data_sampler)
        size_of = self._accumulator_coder.get_estimated_size_and_observables
        timestamps = self.timestamp_combiner
        edge = ChunkEdge(self.receivers[0], self._readers)
        self._accumulators = Accumulators(
            self.combine_fn,
            lambda accumulator: int(size_of(accumulator)[0]),
            lambda values, origins: edge.send(values, origins, Kind.OWN),
            Places(self._key_coder),
            is_global=self.is_default_windowing,
            combine_timestamps=None if timestamps is None else timestamps.combine,
        )

    def process(self, element: WindowedValue) -> None:
        self.process_chunk([element.value], [element], Kind.OWN)

    @override
    def process_chunk(self, values: list[Any], origins: list[WindowedValue], kind: Kind) -> None:
        accumulators = self._accumulators
        with self.scoped_process_state, ChargedChunk(self.step_name, accumulators.current_element):
            accumulators.add(values, origins)

    @override
    def process_one(self, value: Any, origin: WindowedValue) -> None:
        self.process_chunk([value], [origin], Kind.OWN)

    def finish(self) -> None:
        with self.scoped_finish_state, ChargedTo(self.step_name):
            self._accumulators.drain()


class ChunkedCombine(operations.CombineOperation):  # type: ignore[misc]
    """A combiner after the shuffle, for one phase of a lifted combiner or for all of one."""

    users_fn: core.CombineFn

    def prepare(
        self,
        apply: Callable[[Any], Any],
        consumers: Mapping[str, Sequence[operations.Operation]],
        *,
        makes_lists: bool,
    ) -> None:
        """Set what ``CombineOperation`` has in private attributes; called before ``setup``."""
        self._step = Combined(apply, makes_lists=makes_lists)
        self._step.limit = _MAX_VALUES
        self._readers = [reader for readers in consumers.values() for reader in readers]

    def setup(self, data_sampler: Any = None) -> None:
        super().setup(data_sampler)
        self._edge = ChunkEdge(self.receivers[0], self._readers)
        self.send_one = self._edge.sender()
        self.process_one = one_by_one(self, self._step)

    def process(self, element: WindowedValue) -> None:
        self.process_chunk([element.value], [element], Kind.OWN)

    @override
    def process_chunk(self, values: list[Any], origins: list[WindowedValue], kind: Kind) -> None:
        with self.scoped_process_state, ChargedChunk(self.step_name, self._step.current_element):
            self._step.run(values, origins, kind, self)

    def send(
        self, results: list[Any], origins: list[WindowedValue], kind: Kind, *, are_values: bool
    ) -> None:
        """See ``Output.send``: every result is a value."""
        with ChargedTo(self.step_name):  # the results may be those of an earlier element
            self._edge.send(results, origins, kind)

    def finish(self) -> None:
        super().finish()
        self._edge.finish()


def one_by_one(operation: Any, step: Step) -> SendOne:
    """Return a function that processes one value by the step of an operation."""
    state, step_name = operation.scoped_process_state, operation.step_name
    run_one = step.one_by_one(operation.send_one)

    def process_one(value: Any, origin: WindowedValue) -> None:
        with state:
            try:  # for each value: cheaper than ``ChargedTo``
                run_one(value, origin)
            except BaseException as error:
                note_element(error, value)
                charge(error, step_name)
                raise

    return process_one


def main_tag(output_tags: Sequence[str]) -> str:
    """Return the tag of a step's main output."""
    return "None" if len(output_tags) > 1 else output_tags[0]


def output_handler(
    operation: operations.Operation,
    windowing: core.Windowing,
    output_tags: Sequence[str],
    *,
    refuses_text: bool = False,
) -> common.OutputHandler:
    """Return Beam's handler that passes results of ``process`` to the receivers of a step."""
    tagged = operations._TaggedReceivers(operation.counter_factory, operation.step_name)
    tagged.update(zip(output_tags, operation.receivers, strict=True))
    main = tagged[None] = tagged[main_tag(output_tags)]
    return common._OutputHandler(
        Assignment(windowing.windowfn), main, tagged, None, None, False, False, refuses_text
    )


def _grown(limit: int, size: float, value: object) -> int:
    """Return the limit of the next chunk, whose values are probably like this one."""
    max_values = _MAX_ATOMS if type(value) in ATOMS else _MAX_VALUES
    return max(1, min(2 * limit, max_values, int(_MAX_BYTES / (size + 1))))


class WindowInto(beam.DoFn):  # type: ignore[misc]
    """A placeholder DoFn for Beam's operation; ``AssigningWindows`` assigns the windows."""

    def __init__(self, window_fn: WindowFn) -> None:
        self.window_fn = window_fn

    def process(self, element: Any) -> Iterator[Any]:
        yield from ()
