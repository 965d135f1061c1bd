"""Full-window partitions where nobody knows them: on other runners, in harnesses without us."""

import base64
import operator
import subprocess
import sys
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.internal import pickler
from apache_beam.pvalue import AsSingleton
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows, GlobalWindow, TimestampedValue

from beam_spark_runner.transforms import FullWindowPartition, Order
from beam_spark_runner.transforms.full_window.functions import AggregateDoFn, ReduceDoFn
from beam_spark_runner.transforms.full_window.mapping import FunctionDoFn, MapPartitionDoFn

RUNNERS = ["FnApiRunner", pytest.param("BundleBasedDirectRunner", marks=pytest.mark.rare)]
NAMES = {"BundleBasedDirectRunner": "apache_beam.runners.direct.direct_runner."}


def added(records: Any, side: int) -> list[int]:
    return [sum(records) + side]


@pytest.mark.parametrize("runner", RUNNERS)
def test_all_elements_are_one_partition(runner: str) -> None:
    window = FullWindowPartition()
    with beam.Pipeline(NAMES.get(runner, "") + runner) as p:
        values = p | beam.Create([3, 1, 2])
        none = values | "none" >> beam.Filter(lambda value: value > 3)
        timed = (
            values
            | beam.Map(lambda value: TimestampedValue(value, value))
            | beam.WindowInto(FixedWindows(2))
        )
        side = AsSingleton(p | "side" >> beam.Create([100]))
        last = beam.Map(lambda value, time=beam.DoFn.TimestampParam: (value, time))
        end = GlobalWindow().max_timestamp()
        stamped = timed | window.map_partition(added, side) | "when" >> last
        assert_that(
            stamped | beam.MapTuple(lambda value, time: (value, time.micros // 1000)),
            equal_to([(106, end.micros // 1000)]),
            "mapped",
        )
        assert_that(none | "m" >> window.map_partition(added, side), equal_to([100]), "empty")
        counted = none | window.aggregate(beam.combiners.CountCombineFn())
        assert_that(counted, equal_to([0]), "aggregated")
        assert_that(none | window.reduce(operator.add), equal_to([]), "nothing")
        assert_that(values | "r" >> window.reduce(operator.add), equal_to([6]), "reduced")
        in_order = timed | window.sort_partition(lambda value: value, Order.DESCENDING)
        kept = in_order | beam.Map(
            lambda value, time=beam.DoFn.TimestampParam, window=beam.DoFn.WindowParam: (
                value,
                time.micros // 1_000_000,
                window.start.micros // 1_000_000,
            )
        )
        assert_that(kept, equal_to([(3, 3, 2), (2, 2, 2), (1, 1, 0)]), "sorted")


@pytest.mark.parametrize("runner", RUNNERS)
def test_keys_are_partitions(runner: str) -> None:
    window = FullWindowPartition.by_key()
    with beam.Pipeline(NAMES.get(runner, "") + runner) as p:
        pairs = p | beam.Create([("a", 1), ("b", 5), ("a", 2)])
        assert_that(
            pairs | window.map_partition(added, 10), equal_to([("a", 13), ("b", 15)]), "mapped"
        )
        assert_that(pairs | window.reduce(max), equal_to([("a", 2), ("b", 5)]), "reduced")
        in_order = pairs | window.sort_partition(lambda value: -value)
        assert_that(in_order, equal_to([("a", 2), ("a", 1), ("b", 5)]), "sorted")


WITHOUT_US = """
import base64, sys
class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("beam_spark_runner", "pyspark"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refusing())
for name in [name for name in sys.modules if name.split(".")[0] == "beam_spark_runner"]:
    del sys.modules[name]
from apache_beam.internal import pickler
fn = pickler.loads(base64.b64decode(sys.argv[1]))
for bundle in ([], [1, 2, 3]):
    fn.setup()
    fn.start_bundle()
    from apache_beam.transforms.window import GlobalWindow
    from apache_beam.utils.timestamp import Timestamp
    from apache_beam.utils.windowed_value import PANE_INFO_UNKNOWN
    made = []
    for element in bundle:
        made += fn.process(element, Timestamp(1), GlobalWindow(), PANE_INFO_UNKNOWN)
    made += fn.finish_bundle()
    fn.teardown()
    print([each.value for each in made])
"""


@pytest.mark.parametrize(
    ("fn", "printed"),
    [
        (MapPartitionDoFn(FunctionDoFn(lambda records: [sum(records)]), ((), {})), "[0]\n[6]\n"),
        (AggregateDoFn(beam.combiners.CountCombineFn(), ((), {})), "[0]\n[3]\n"),
        (ReduceDoFn(max, ((), {})), "[]\n[3]\n"),
    ],
    ids=["map_partition", "aggregate", "reduce"],
)
def test_harnesses_need_no_copy_of_this_package(fn: beam.DoFn, printed: str) -> None:
    coded = base64.b64encode(pickler.dumps(fn)).decode()
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_US, coded], capture_output=True, text=True, check=False
    )
    assert done.stdout == printed, done.stderr
