"""Lets Interactive Beam record unbounded sources on this runner, and replay them.

It records elements with the watermark and the processing time of their arrival, by transforms
that Beam wrote for its DirectRunner only. A recording is played by a TestStream, whose elements are
``WindowedValueHolder``; these are unpacked here for the steps downstream.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.coders import BooleanCoder
from apache_beam.pipeline import AppliedPTransform, Pipeline, PTransformOverride
from apache_beam.portability.api import beam_interactive_api_pb2
from apache_beam.testing import test_stream
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, TimerSpec, on_timer
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Duration, Timestamp
from apache_beam.utils.windowed_value import WindowedValue
from google.protobuf.message import Message
from typing_extensions import override

from beam_spark_runner.core.time import MIN_US
from beam_spark_runner.harness.beam.timing import Timing, timing_of_bundle

_Formatter = test_stream._TestStreamFormatter
_MOMENT = Duration(micros=1)


def use_runnable_recorders(pipeline: Pipeline) -> None:
    """Replace the steps of each ``ReverseTestStream`` that the Fn API cannot run."""
    pipeline.replace_all([_Replace(_recorder)])


def play_what_was_recorded(pipeline: Pipeline, *, is_interactive: bool) -> None:
    """Unpack the elements of each TestStream that plays a recording.

    Args:
        pipeline: The pipeline to change.
        is_interactive: Whether Interactive Beam runs the pipeline. It names outputs of the
            TestStream after collections that it has recorded, or computed in an earlier run; the
            outputs get their windowing.
    """
    windowings: dict[str, Any] = {}
    if is_interactive:
        from apache_beam.runners.interactive import utils  # only where Interactive Beam runs

        recorded = utils.cacheables().values()
        windowings = {str(cacheable.to_key()): cacheable.pcoll.windowing for cacheable in recorded}
    pipeline.replace_all([_ReplaceTestStream(windowings, of_all=is_interactive)])


def _has_windowed_values(stream: test_stream.TestStream) -> bool:
    return any(
        isinstance(element.value, test_stream.WindowedValueHolder)
        for event in stream._events
        if isinstance(event, test_stream.ElementEvent)
        for element in event.timestamped_values
    )


def _recorder(transform: Any) -> beam.PTransform | None:
    if isinstance(transform, test_stream.PairWithTiming):
        # It has no proto; runners must replace it.
        return beam.ParDo(_PairWithTiming())
    if isinstance(transform, beam.ParDo):
        if isinstance(transform.fn, test_stream._TimingEventGenerator):
            return beam.ParDo(
                _Sampler(transform.fn._output_tag, transform.fn._sample_resolution_sec)
            )
        if type(transform.fn) is _Formatter:
            return beam.ParDo(
                _TestStreamFormatter(transform.fn._coder, transform.fn._output_format)
            )
    return None


class _Replace(PTransformOverride):  # type: ignore[misc]
    """Replaces transforms for which ``find`` returns another one."""

    def __init__(self, find: Callable[[Any], beam.PTransform | None]) -> None:
        self._find = find

    def matches(self, applied_ptransform: AppliedPTransform) -> bool:
        return self._find(applied_ptransform.transform) is not None

    def get_replacement_transform_for_applied_ptransform(
        self, applied_ptransform: AppliedPTransform
    ) -> beam.PTransform:
        return self._find(applied_ptransform.transform)


class _Timed(beam.DoFn):  # type: ignore[misc]
    """A DoFn that knows the watermark and processing time of its bundle.

    In a remote SDK harness, the watermark is not known: a recording that was made there is played
    without late elements, and windows end with the recording.
    """

    def start_bundle(self) -> None:
        timing = timing_of_bundle() or Timing(MIN_US, MIN_US, None)
        clock_us = time.time_ns() // 1_000 if timing.clock_us is None else timing.clock_us
        self._now = test_stream.TimingInfo(
            Timestamp(micros=clock_us), Timestamp(micros=timing.watermark_us)
        )
        self._arriving = Timestamp(micros=timing.arriving_us)
        self._has_ended = timing.has_ended


class _PairWithTiming(_Timed):
    """Pairs each element with processing time, and with the watermark before its arrival.

    The watermark may have advanced just before the elements of the bundle arrived. It is lowered so
    that none of them is late when the recording is played.
    """

    @override
    def start_bundle(self) -> None:
        super().start_bundle()
        self._elements: list[WindowedValue] = []

    def process(
        self,
        element: Any,
        timestamp: Any = beam.DoFn.TimestampParam,
        window: Any = beam.DoFn.WindowParam,
    ) -> None:
        self._elements.append(WindowedValue(element, timestamp, (window,)))

    def finish_bundle(self) -> Iterator[WindowedValue]:
        watermark = self._now.watermark
        times = [element.timestamp for element in self._elements if not _is_event(element.value)]
        if times:
            watermark = max(watermark, min(self._arriving, min(times) - _MOMENT))
        now = test_stream.TimingInfo(self._now.processing_time, watermark)
        for element in self._elements:
            yield element.with_value((element.value, now))


def _is_event(element: Any) -> bool:
    return isinstance(element, _Header | test_stream.Event)


class _Header(NamedTuple):
    """Stands for a ``TestStreamFileHeader``, which cannot be pickled."""

    tag: str


class _Record(NamedTuple):
    """Stands for a proto that the next step writes, by calling ``SerializeToString``."""

    coded: bytes
    kind: str  # the name of its class in beam_interactive_api_pb2, which cannot be pickled

    def SerializeToString(self) -> bytes:
        return self.coded

    @override
    def __str__(self) -> str:
        return str(getattr(beam_interactive_api_pb2, self.kind).FromString(self.coded))


class _Sampler(_Timed):
    """Passes elements on after a header, and emits events at a fixed interval to sample the time.

    The next steps set the watermark and processing time of these events. Beam's own DoFn treats
    what a bag's ``read`` returns as an iterator, sends the header as a proto, which cannot be
    pickled, and samples forever, even after the end of its input.
    """

    BEGUN = BagStateSpec("begun", BooleanCoder())
    NEXT = TimerSpec("next", TimeDomain.REAL_TIME)

    def __init__(self, output_tag: str, sample_resolution_sec: float) -> None:
        self._tag = output_tag
        self._every = Duration.of(sample_resolution_sec)

    def process(
        self,
        pair: Any,
        beginnings: Any = beam.DoFn.StateParam(BEGUN),
        following: Any = beam.DoFn.TimerParam(NEXT),
    ) -> Iterable[Any]:
        _, (element, _) = pair
        if not list(beginnings.read()):
            beginnings.add(True)
            yield _Header(self._tag)
            yield from self._sample(following)
        yield element

    @on_timer(NEXT)  # type: ignore[untyped-decorator]
    def sample(self, following: Any = beam.DoFn.TimerParam(NEXT)) -> Iterable[Any]:
        if not self._has_ended:
            yield from self._sample(following)

    def _sample(self, following: Any) -> Iterable[Any]:
        following.set(self._now.processing_time + self._every)
        yield test_stream.ProcessingTimeEvent(self._every)
        yield test_stream.WatermarkEvent(MIN_TIMESTAMP)


class _IteratedBag:
    """A bag whose ``read`` returns an iterator."""

    def __init__(self, bag: Any) -> None:
        self._bag = bag
        self.add, self.clear = bag.add, bag.clear

    def read(self) -> Iterator[Any]:
        return iter(self._bag.read())


class _TestStreamFormatter(_Formatter):  # type: ignore[misc, valid-type]
    """Beam's formatter, adapted to bags that return iterables, and to protos as ``_Record``."""

    def process(
        self,
        pair: Any,
        timestamp: Any = beam.DoFn.TimestampParam,
        previous: Any = beam.DoFn.StateParam(_Formatter.PREV_SAMPLE_TIME_STATE),
    ) -> None:
        key, (event, timing) = pair
        if isinstance(event, _Header):
            event = beam_interactive_api_pb2.TestStreamFileHeader(tag=event.tag)
        super().process((key, (event, timing)), timestamp, _IteratedBag(previous))

    def finish_bundle(self) -> Iterable[WindowedValue]:
        for element in super().finish_bundle():
            value = element.value
            if isinstance(value, Message):
                value = _Record(value.SerializeToString(), type(value).__name__)
            yield element.with_value(value)


class _ReplaceTestStream(PTransformOverride):  # type: ignore[misc]
    def __init__(self, windowings: Mapping[str, Any], *, of_all: bool) -> None:
        self._windowings, self._of_all = windowings, of_all
        self._replaced: list[test_stream.TestStream] = []

    def matches(self, applied_ptransform: AppliedPTransform) -> bool:
        transform = applied_ptransform.transform
        return (
            isinstance(transform, test_stream.TestStream)
            and not any(transform is other for other in self._replaced)
            and (self._of_all or _has_windowed_values(transform))
        )

    def get_replacement_transform_for_applied_ptransform(
        self, applied_ptransform: AppliedPTransform
    ) -> beam.PTransform:
        self._replaced.append(applied_ptransform.transform)
        return _Played(applied_ptransform.transform, self._windowings)


class _Played(beam.PTransform):  # type: ignore[misc]
    def __init__(self, stream: test_stream.TestStream, windowings: Mapping[str, Any]) -> None:
        super().__init__()
        self._stream, self._windowings = stream, windowings

    def expand(self, begin: beam.pvalue.PBegin) -> Any:
        outputs = begin | self._stream
        if not isinstance(outputs, dict):
            return outputs | beam.ParDo(_Unpack())
        return {
            tag: output | f"Unpack {tag}" >> self._unpack(tag) for tag, output in outputs.items()
        }

    def _unpack(self, tag: str) -> beam.ParDo:
        windowing = self._windowings.get(tag)
        return beam.ParDo(_Unpack()) if windowing is None else _UnpackInto(windowing)


class _Unpack(beam.DoFn):  # type: ignore[misc]
    """Unpacks recorded elements, with their timestamps and windows."""

    def process(self, element: Any) -> Iterable[Any]:
        is_packed = isinstance(element, test_stream.WindowedValueHolder)
        yield element.windowed_value if is_packed else element


class _UnpackInto(beam.ParDo):  # type: ignore[misc]
    def __init__(self, windowing: Any) -> None:
        super().__init__(_Unpack())
        self._windowing = windowing

    def get_windowing(self, inputs: Any) -> Any:
        return self._windowing
