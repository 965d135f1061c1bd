"""Streaming pipelines with more exchanges in a row than one Spark job has."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.metrics import Metrics
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.trigger import (
    AccumulationMode,
    AfterCount,
    AfterWatermark,
    Repeatedly,
)
from apache_beam.transforms.window import FixedWindows, TimestampCombiner, TimestampedValue
from apache_beam.utils.windowed_value import PaneInfoTiming

from tests.cli.programs import Program
from tests.harvest import Harvest, harvest
from tests.pipelines.test_streaming_sources import count
from tests.segments import CUT
from tests.spark.test_session import run_script
from tests.stateful import Collect, Number

pytestmark = pytest.mark.spark

LATENESS = 20


def pairs(*times: int, key: str = "a") -> list[TimestampedValue]:
    """Return pairs of a key and a number, which is also the second of its timestamp."""
    return [TimestampedValue((key, time), time) for time in times]


def passed_through(elements: Any, groupings: int, name: str = "") -> Any:
    """Group pairs of a key and a number again and again, each by itself; they come out as they are.

    Each pane has one element, and its timestamp.
    """
    each = beam.WindowInto(
        FixedWindows(10),
        trigger=Repeatedly(AfterCount(1)),
        accumulation_mode=AccumulationMode.DISCARDING,
        timestamp_combiner=TimestampCombiner.OUTPUT_AT_EARLIEST,
        allowed_lateness=LATENESS,
    )
    elements = elements | f"{name}each" >> each
    for number in range(groupings):
        elements = elements | f"{name}key {number}" >> beam.Map(lambda pair: (pair, None))
        elements = elements | f"{name}group {number}" >> beam.GroupByKey()
        elements = elements | f"{name}pair {number}" >> beam.Keys()
    return elements | f"{name}typed" >> beam.Map(lambda pair: pair).with_output_types(
        tuple[str, int]
    )


def events() -> Stream:
    """Return two keys, two windows, late elements, and one that comes too late."""
    stream = Stream().with_output_types(tuple[str, int])
    stream.add_elements(pairs(1, 2) + pairs(3, key="b")).advance_watermark_to(5)
    stream.add_elements(pairs(4, 11)).advance_watermark_to(10)
    stream.add_elements(pairs(5)).advance_watermark_to(32)
    stream.add_elements(pairs(6, 12)).advance_watermark_to_infinity()
    return stream


def results(passed: Any) -> dict[str, Any]:
    """Return panes, timers and states of a pipeline's last steps."""
    panes = beam.WindowInto(
        FixedWindows(10),
        trigger=AfterWatermark(early=AfterCount(1), late=AfterCount(1)),
        accumulation_mode=AccumulationMode.ACCUMULATING,
        timestamp_combiner=TimestampCombiner.OUTPUT_AT_EARLIEST,
        allowed_lateness=LATENESS,
    )
    groups = passed | panes | "last" >> beam.GroupByKey()
    return {
        "groups": groups | beam.MapTuple(lambda key, numbers: (key, sorted(numbers))),
        "gathered": passed | beam.ParDo(Collect()),
        "numbers": passed | beam.ParDo(Number()),
    }


def everything(found: Harvest) -> dict[str, list[Any]]:
    """Return all that Beam knows of the results."""
    return {
        label: sorted(
            (kept.value, kept.timestamp.micros, kept.window, repr(kept.pane)) for kept in each
        )
        for label, each in found.kept.items()
    }


def played(session: Any, groupings: int, *flags: str) -> Harvest:
    return harvest(session, lambda p: results(passed_through(p | events(), groupings)), *flags)


@pytest.mark.parametrize("groupings", [15, 30])
@pytest.mark.rare
def test_a_deep_pipeline_does_what_a_shallow_one_does(
    spark_session: Any, tmp_path: Path, groupings: int
) -> None:
    shallow = played(spark_session, 1)
    deep = played(spark_session, groupings, f"--checkpoint_dir={tmp_path}")
    assert everything(deep) == everything(shallow)
    assert sorted(
        (kept.pane.index, kept.value, PaneInfoTiming.to_string(kept.pane.timing))
        for kept in deep.kept["groups"]
    ) == [
        (0, ("a", [1, 2]), "EARLY"),
        (0, ("a", [11]), "EARLY"),
        (0, ("b", [3]), "EARLY"),
        (1, ("a", [1, 2, 4]), "EARLY"),
        (1, ("a", [11]), "ON_TIME"),
        (1, ("b", [3]), "ON_TIME"),
        (2, ("a", [1, 2, 4]), "ON_TIME"),
        (2, ("a", [11, 12]), "LATE"),
        (3, ("a", [1, 2, 4, 5]), "LATE"),
    ]
    assert deep["gathered"] == [
        ("a", [1, 2, 4]),
        ("a", [5]),
        ("a", [11]),
        ("a", [12]),
        ("b", [3]),
    ]
    assert not list(tmp_path.rglob("*.rows"))


class Seen(beam.DoFn):  # type: ignore[misc]
    """Counts its elements, and passes them on."""

    def __init__(self, name: str) -> None:
        self._seen = Metrics.counter("test", name)

    def process(self, element: Any) -> Iterator[Any]:
        self._seen.inc()
        yield element


def seen(name: str) -> Any:
    return f"seen {name}" >> beam.ParDo(Seen(name)).with_output_types(tuple[str, int])


@pytest.mark.rare
def test_sources_and_side_inputs_on_both_sides_of_a_border(spark_session: Any) -> None:
    """What is gathered in the last levels is looked up in the first ones, and the other way."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        window = FixedWindows(4)
        rates = p | "rate" >> beam.Create([("rate", 8)]) | "rates" >> count(3, 0.05) | beam.Values()
        rates = rates | "windows of rates" >> beam.WindowInto(window)
        numbers = p | beam.Create([("a", 8), ("b", 8)]) | count(3, 0.05) | seen("first")
        passed = passed_through(numbers, 15)
        deep = passed | "deep" >> beam.WindowInto(window) | seen("last")
        rated = deep | "rated" >> beam.Map(
            lambda pair, rates: (pair[0], pair[1] + sum(rates)), beam.pvalue.AsList(rates)
        ).with_output_types(tuple[str, int])
        looks = numbers | "early" >> beam.WindowInto(window)
        looked = looks | "look" >> beam.Map(
            lambda pair, deep: (pair, sorted(number for _, number in deep)),
            beam.pvalue.AsList(deep),
        )
        return {"rated": rated | beam.CombinePerKey(sum), "looked": looked}

    found = harvest(spark_session, build, "--batch_interval_millis=50")
    sums = [5 * sum(range(start, start + 4)) for start in (0, 4)]
    assert found["rated"] == [(key, each) for key in "ab" for each in sums]
    assert found["looked"] == [
        ((key, number), sorted([*range(start, start + 4)] * 2))
        for key in "ab"
        for start in (0, 4)
        for number in range(start, start + 4)
    ]
    assert (found.counter("first"), found.counter("last")) == (16, 16)


KILLED = """
    from pathlib import Path
    from apache_beam.metrics import Metrics, MetricsFilter
    from apache_beam.testing.test_stream import TestStream
    from apache_beam.transforms.userstate import CombiningValueStateSpec

    OUT = Path(os.environ["OUT"])
    DRIVER = os.getpid()

    class Sum(beam.DoFn):
        TOTAL = CombiningValueStateSpec("total", sum)

        def __init__(self, name):
            self.name = name

        def process(self, pair, total=beam.DoFn.StateParam(TOTAL)):
            Metrics.counter("test", "seen").inc()
            total.add(pair[1])
            if self.name == "last" and pair[1] == 4 and not (OUT / "killed").exists():
                (OUT / "killed").touch()
                os.kill(DRIVER, 9)
                time.sleep(3600)
            yield pair
            (OUT / f"{self.name}-{total.read()}").touch()

    def sums(name):
        return name >> beam.ParDo(Sum(name)).with_output_types(beam.typehints.Tuple[str, int])

    events = TestStream().with_output_types(beam.typehints.Tuple[str, int])
    for number in (1, 2, 4, 8):
        events.add_elements([("a", number)])
    pipeline = beam.Pipeline(argv=OPTIONS)
    events.advance_watermark_to_infinity()
    pipeline | events | sums("first") | sums("middle") | sums("last")
    result = pipeline.run()
    result.wait_until_finish()
    (first, *others) = result.metrics().query(MetricsFilter().with_name("seen"))["counters"]
    print("seen", [each.committed for each in (first, *others)])
    """


@pytest.mark.slow
@pytest.mark.rare
def test_a_driver_that_is_killed_in_the_midst_of_an_epoch(tmp_path: Path) -> None:
    """In its last Spark job. The next start continues, and deletes the rows that were left."""
    out, checkpoints = tmp_path / "out", tmp_path / "checkpoints"
    out.mkdir()
    flags = ["--spark_master_url=local[2]", f"--checkpoint_dir={checkpoints}"]
    flags.append("--spark_class_archive=off")  # else a process that makes one may outlive it
    script = CUT + re.sub("^    ", "", KILLED, flags=re.MULTILINE)
    folders = [tmp_path / "first run", tmp_path / "second run"]
    for folder in folders:
        folder.mkdir()
    first = Program(folders[0], script, *flags, OUT=str(out)).end(240)
    assert first.code == -signal.SIGKILL
    left = {path.name for path in checkpoints.rglob("*.rows")}
    # Of two partitions, in each of the two borders that the epoch had come to.
    assert len(left) == 4
    assert all(name.startswith("main-000000000003-000000000001-") for name in left)
    second = Program(folders[1], script, *flags, OUT=str(out)).end(240)
    assert second.code == 0, second.err
    assert second.out.splitlines()[-1] == "seen [4, 4, 4]"
    names = {path.name for path in out.iterdir()} - {"killed"}
    assert names == {f"{name}-{n}" for name in ("first", "middle", "last") for n in (1, 3, 7, 15)}
    assert not list(checkpoints.rglob("*.rows"))


ON_CONNECT = """
    import apache_beam as beam
    from apache_beam.testing.test_stream import TestStream
    from apache_beam.testing.util import assert_that, equal_to
    from apache_beam.transforms.window import FixedWindows, TimestampedValue

    events = TestStream().with_output_types(beam.typehints.Tuple[str, int])
    for second in (1, 2, 11):
        events.add_elements([TimestampedValue(("a", second), second)])
    with beam.Pipeline(argv=["--runner=SparkPortableRunner"]) as p:
        pairs = p | events.advance_watermark_to_infinity() | beam.WindowInto(FixedWindows(10))
        sums = pairs | "First" >> beam.CombinePerKey(sum)
        assert_that(sums | "Second" >> beam.CombinePerKey(sum), equal_to([("a", 3), ("a", 11)]))
    """


@pytest.mark.rare
@pytest.mark.connect
@pytest.mark.slow
def test_on_connect(connect_server: str, tmp_path: Path) -> None:
    script = CUT + re.sub("^    ", "", ON_CONNECT, flags=re.MULTILINE)
    temp = f"--temp_location={tmp_path / 'temp'}"
    run_script(
        script.replace('SparkPortableRunner"', f'SparkPortableRunner", "{temp}"'),
        tmp_path,
        SPARK_REMOTE=connect_server,
    )
