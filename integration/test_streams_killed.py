"""Streaming pipelines whose program is killed, and started again, until they are done."""

import functools
import os
import random
import signal
import textwrap
import time
from pathlib import Path

import pytest

from beam_spark_runner.recovery.manifest import epoch_in
from tests.cli.programs import Program
from tests.numbers_source import FIRST, Log
from tests.segments import CUT

KILLS = int(os.environ.get("STREAM_KILLS", "4"))
EVENTS = 12
EACH = """
    from pathlib import Path
    from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
    from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
    from apache_beam.metrics import Metrics, MetricsFilter
    from apache_beam.testing.test_stream import TestStream
    from apache_beam.transforms.core import RestrictionProvider
    from apache_beam.transforms.timeutil import TimeDomain
    from apache_beam.transforms.userstate import CombiningValueStateSpec, TimerSpec, on_timer
    from apache_beam.transforms.window import FixedWindows, TimestampedValue
    from apache_beam.utils.timestamp import Duration, Timestamp

    OUT = Path(os.environ["OUT"])

    class Sum(beam.DoFn):
        TOTAL = CombiningValueStateSpec("total", sum)
        DUE = TimerSpec("due", TimeDomain.WATERMARK)

        def process(self, pair, total=beam.DoFn.StateParam(TOTAL), due=beam.DoFn.TimerParam(DUE),
                    window=beam.DoFn.WindowParam):
            time.sleep(0.1)
            Metrics.counter("test", "seen").inc()
            total.add(pair[1])
            due.set(window.end)

        @on_timer(DUE)
        def flush(self, key=beam.DoFn.KeyParam, total=beam.DoFn.StateParam(TOTAL),
                  window=beam.DoFn.WindowParam):
            yield "all", (key, int(window.start), total.read())

    def write(group):
        for key, start, total in group[1]:
            (OUT / f"sum-{key}-{start}-{total}").touch()

    def finish(pipeline):
        result = pipeline.run()
        result.wait_until_finish()
        (counter,) = result.metrics().query(MetricsFilter().with_name("seen"))["counters"]
        print("seen", counter.committed)
    """
PLAYED = """
    events = TestStream().with_output_types(beam.typehints.Tuple[str, int])
    for number in range(EVENTS):
        events.add_elements(
            [TimestampedValue((key, number), number) for key in "abc"]
        )
        if number % 4 == 3:
            events.advance_watermark_to(number + 1)
    events.advance_watermark_to_infinity()
    pipeline = beam.Pipeline(argv=OPTIONS)
    sums = pipeline | events | beam.WindowInto(FixedWindows(4)) | beam.ParDo(Sum())
    sums | "Wider" >> beam.WindowInto(FixedWindows(8)) | beam.GroupByKey() | beam.Map(write)
    finish(pipeline)
    """
SOURCES = """
    class Numbers(RestrictionProvider):
        def initial_restriction(self, key):
            return OffsetRange(0, EVENTS)

        def create_tracker(self, restriction):
            return OffsetRestrictionTracker(restriction)

        def restriction_size(self, key, restriction):
            return restriction.size()

    class Count(beam.DoFn):
        @beam.DoFn.unbounded_per_element()
        def process(self, key, tracker=beam.DoFn.RestrictionParam(Numbers()),
                    estimator=beam.DoFn.WatermarkEstimatorParam(
                        ManualWatermarkEstimator.default_provider())):
            position = tracker.current_restriction().start
            while tracker.try_claim(position):
                yield TimestampedValue((key, position), position)
                position += 1
                estimator.set_watermark(Timestamp(position))
                if position % 3 == 0:
                    tracker.defer_remainder(Duration(0.3))
                    return

    pipeline = beam.Pipeline(argv=OPTIONS)
    count = beam.ParDo(Count()).with_output_types(beam.typehints.Tuple[str, int])
    window = FixedWindows(4)
    rates = pipeline | "Rate" >> beam.Create(["rate"]) | "Rates" >> count | beam.Values()
    rates = rates | "Rate windows" >> beam.WindowInto(window)
    pairs = pipeline | beam.Create(list("ab")) | "Pairs" >> count | beam.WindowInto(window)
    rated = pairs | beam.Map(
        lambda pair, rates: (pair[0], pair[1] + sum(rates)), beam.pvalue.AsList(rates)
    ).with_output_types(beam.typehints.Tuple[str, int])
    sums = rated | beam.ParDo(Sum())
    sums | "Wider" >> beam.WindowInto(FixedWindows(8)) | beam.GroupByKey() | beam.Map(write)
    finish(pipeline)
    """
UNBOUNDED = """
    from tests.numbers_source import Log, Numbers, pairs

    log = Log(folder=os.environ["NOTES"], checkpoints=os.environ["CHECKPOINTS"])
    source = Numbers(name="s", end=EVENTS, at_once=3, splits=2, ends_with_its_last=True, log=log)
    pipeline = beam.Pipeline(argv=OPTIONS)
    read = pairs(source, most_in_bundle=2)(pipeline)
    sums = read | beam.WindowInto(FixedWindows(4)) | beam.ParDo(Sum())
    sums | "Wider" >> beam.WindowInto(FixedWindows(8)) | beam.GroupByKey() | beam.Map(write)
    finish(pipeline)
    """


def sums_of_played() -> set[str]:
    """Return the names of the files that the pipeline with a TestStream writes."""
    return {
        f"sum-{key}-{start}-{sum(range(start, start + 4))}"
        for key in "abc"
        for start in range(0, EVENTS, 4)
    }


def sums_of_sources() -> set[str]:
    """The same of the one with splittable DoFns and a side input."""
    return {
        f"sum-{key}-{start}-{5 * sum(range(start, start + 4))}"
        for key in "ab"
        for start in range(0, EVENTS, 4)
    }


def sums_of_unbounded() -> set[str]:
    """The same of the one with an ``UnboundedSource``."""
    return {
        f"sum-s{split}-{FIRST + start}-{sum(range(start, start + 4))}"
        for split in range(2)
        for start in range(0, EVENTS, 4)
    }


def has_come_to(checkpoints: Path, epoch: int) -> bool:
    """Whether an epoch was committed."""
    return newest(checkpoints) >= epoch


def newest(checkpoints: Path) -> int:
    """Return the last epoch that was committed."""
    names = (path.name for path in checkpoints.glob("*.manifest"))
    return max((epoch_in(name, "main") or 0 for name in names), default=0)


@pytest.mark.timeout(60 * (KILLS + 2))
@pytest.mark.parametrize(
    ("pipeline", "seen", "sums"),
    [
        pytest.param(PLAYED, 3 * EVENTS, sums_of_played(), id="TestStream"),
        pytest.param(SOURCES, 2 * EVENTS, sums_of_sources(), id="sources and a side input"),
        pytest.param(
            CUT + textwrap.dedent(SOURCES),
            2 * EVENTS,
            sums_of_sources(),
            id="a Spark job for each exchange",
        ),
        pytest.param(UNBOUNDED, 2 * EVENTS, sums_of_unbounded(), id="readers with marks"),
    ],
)
@pytest.mark.parametrize("seed", range(1))
def test_kills_at_any_moment_change_nothing(
    tmp_path: Path, seed: int, pipeline: str, seen: int, sums: set[str]
) -> None:
    chance = random.Random(seed)
    out, notes, checkpoints = (tmp_path / name for name in ("out", "notes", "checkpoints"))
    out.mkdir()
    notes.mkdir()
    places = {"OUT": str(out), "NOTES": str(notes), "CHECKPOINTS": str(checkpoints)}
    flags = ["--spark_master_url=local[2]", f"--checkpoint_dir={checkpoints}"]
    parts = f"    EVENTS = {EVENTS}\n", EACH, pipeline
    script = "\n".join(map(textwrap.dedent, parts))
    for number in range(KILLS):
        folder = tmp_path / f"run-{number}"
        folder.mkdir()
        until = newest(checkpoints) + chance.randrange(3)
        program = Program(folder, script, *flags, **places)
        if not program.wait_until(functools.partial(has_come_to, checkpoints, until)):
            break  # it has come to its end
        time.sleep(3 * chance.random())  # the moment is chance's, also while Spark starts
        program.send(signal.SIGKILL)
        program.end(60)
    folder = tmp_path / "last"
    folder.mkdir()
    ended = Program(folder, script, *flags, **places).end(120)
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[-1] == f"seen {seen}"
    assert {path.name for path in out.glob("sum-*")} == sums
    assert not list(checkpoints.glob("*.rows"))
    # Callbacks are best effort; none comes before its commit.
    finalized = Log(folder=str(notes), checkpoints=str(checkpoints)).finalized()
    assert all(each.committed > each.committed_at_cut for each in finalized), finalized
