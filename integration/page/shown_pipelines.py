"""Pipelines that a page shows: they run in this process, without a JVM."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import Duration, Timestamp

from beam_spark_runner import SparkPortableRunner

Build = Callable[[beam.Pipeline], object]
_ESTIMATOR = ManualWatermarkEstimator.default_provider()
_CITIES = ("Aachen", "Bonn", "Celle", "Dresden", "Emden")
_END = 1 << 40


def started(build: Build, *flags: str) -> Any:
    """Start a pipeline in this process."""
    options = PipelineOptions(
        ["--spark_master_url=in-process", "--batch_interval_millis=200", *flags]
    )
    pipeline = beam.Pipeline(runner=SparkPortableRunner(), options=options)
    build(pipeline)
    return pipeline.run()


class _Tracker(OffsetRestrictionTracker):  # type: ignore[misc]
    def is_bounded(self) -> bool:
        return False

    def try_split(self, fraction_of_remainder: float) -> Any:
        return None if fraction_of_remainder else super().try_split(0)


class _Numbers(RestrictionProvider):  # type: ignore[misc]
    def initial_restriction(self, element: Any) -> OffsetRange:
        return OffsetRange(0, _END)

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return _Tracker(restriction)

    def restriction_size(self, element: Any, restriction: OffsetRange) -> int:
        return 12_400

    def truncate(self, element: Any, restriction: OffsetRange) -> None:
        """Leave nothing when the pipeline is drained."""


class ReadOrders(beam.DoFn):  # type: ignore[misc]
    """Emits some orders five times a second.

    Args:
        each_time: How many.
        late_s: How far its watermark is behind.
    """

    def __init__(self, each_time: int = 50, late_s: float = 1.0) -> None:
        self._each_time, self._late_s = each_time, late_s

    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]
    def process(
        self,
        element: str,
        tracker: Any = beam.DoFn.RestrictionParam(_Numbers()),  # noqa: B008
        estimator: Any = beam.DoFn.WatermarkEstimatorParam(_ESTIMATOR),  # noqa: B008
    ) -> Iterator[TimestampedValue]:
        first = tracker.current_restriction().start
        for number in range(first, first + self._each_time):
            if not tracker.try_claim(number):
                return
            yield TimestampedValue((_CITIES[number % 5], number), time.time())
        estimator.set_watermark(Timestamp(time.time() - self._late_s))
        tracker.defer_remainder(Duration(0.2))


class Convert(beam.DoFn):  # type: ignore[misc]
    """Converts prices, with the rates of a side input."""

    AMOUNTS = Metrics.distribution("shop", "amounts")

    def process(self, order: tuple[str, int], rates: dict[str, int]) -> Iterator[tuple[str, int]]:
        amount = order[1] % 97 * rates["EUR"]
        self.AMOUNTS.update(amount)
        yield order[0], amount


def orders(each_time: int = 50, late_s: float = 1.0) -> Build:
    """A stream of orders, which are converted and summed by city."""

    def build(p: beam.Pipeline) -> None:
        rates = p | "Rates" >> beam.Create([("EUR", 3)])
        read = beam.ParDo(ReadOrders(each_time, late_s)).with_output_types(tuple[str, int])
        sums = (
            p
            | "Shops" >> beam.Create(["north", "south"])
            | "Read orders" >> read
            | "Convert" >> beam.ParDo(Convert(), beam.pvalue.AsDict(rates))
            | "Windows" >> beam.WindowInto(FixedWindows(2))
            | "Sum by city" >> beam.CombinePerKey(sum)
        )
        _ = sums | "Write" >> beam.Map(lambda pair: pair)

    return build


def sleeping(seconds: float) -> Callable[[Any], Any]:
    """Return a function that sleeps, and returns its argument."""

    def sleep(element: Any) -> Any:
        time.sleep(seconds)
        return element

    return sleep


def words(count: int = 4_000, each_s: float = 0.002) -> Build:
    """A batch pipeline whose step ``Look up`` is slow."""

    def build(p: beam.Pipeline) -> None:
        _ = (
            p
            | "Lines" >> beam.Create(range(count))
            | "Look up" >> beam.Map(sleeping(each_s))
            | "By letter" >> beam.Map(lambda number: (number % 26, number))
            | "Count" >> beam.combiners.Count.PerKey()
            | "Write" >> beam.Map(lambda pair: pair)
        )

    return build


def skewed(count: int = 4_000, each_s: float = 0.02) -> Build:
    """A batch pipeline in which most elements have one key, and are looked up one by one."""

    def build(p: beam.Pipeline) -> None:
        _ = (
            p
            | "Orders" >> beam.Create(range(count))
            | "By city" >> beam.Map(lambda order: ("Bonn" if order % 10 else _CITIES[2], order))
            | "Group" >> beam.GroupByKey()
            | "Orders of a city" >> beam.FlatMap(lambda pair: pair[1])
            | "Look up" >> beam.Map(sleeping(each_s))
        )

    return build


def poisoned(name: str = "Parse") -> Build:
    """A batch pipeline in which an element is a poison for a step of this name."""

    def parse(element: int) -> int:
        if element == 123:
            raise ValueError("order 123 has no <b>price</b>")
        return element

    def build(p: beam.Pipeline) -> None:
        _ = p | "Lines" >> beam.Create(range(200)) | name >> beam.Map(parse)

    return build


def many_steps(count: int) -> Build:
    """A batch pipeline of composites with ten steps each."""

    class Composite(beam.PTransform):  # type: ignore[misc]
        def expand(self, numbers: Any) -> Any:
            for number in range(10):
                numbers = numbers | f"Step {number}" >> beam.Map(lambda element: element)
            return numbers

    def build(p: beam.Pipeline) -> None:
        numbers = p | beam.Create([1, 2, 3])
        for number in range(count // 10):
            numbers = numbers | f"Part {number}" >> Composite()

    return build
