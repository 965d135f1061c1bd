"""What else pipelines are written with: each asks the runner for something of its own."""

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.coders import Coder
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms import stats
from apache_beam.transforms.window import (
    BoundedWindow,
    FixedWindows,
    GlobalWindows,
    NonMergingWindowFn,
    Sessions,
    TimestampedValue,
    WindowFn,
)
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner.core.errors import BundleFailedError
from tests.harvest import harvest, harvest_on, run


@contextlib.contextmanager
def _opened(*args: Any) -> Iterator[list[Any]]:
    yield list(args)


class Asks(beam.DoFn):  # type: ignore[misc]
    """For every parameter that needs no state."""

    def process(
        self,
        element: Any,
        side: Any = beam.DoFn.SideInputParam,
        key: Any = beam.DoFn.KeyParam,
        timestamp: Any = beam.DoFn.TimestampParam,
        window: Any = beam.DoFn.WindowParam,
        pane: Any = beam.DoFn.PaneInfoParam,
        whole: Any = beam.DoFn.WindowedValueParam,
        in_bundle: Any = beam.DoFn.BundleContextParam(_opened, args=["bundle"]),  # noqa: B008
        in_setup: Any = beam.DoFn.SetupContextParam(_opened, args=["setup"]),  # noqa: B008
    ) -> Iterator[Any]:
        assert whole.value == element
        assert whole.timestamp == timestamp
        yield (
            *element,
            *(side, key, timestamp.micros, str(window), pane.index, pane.timing),
            *(in_bundle, in_setup),
        )


def test_parameters_of_process(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        pairs = p | beam.Create([("a", 1), ("b", 12)])
        timed = pairs | beam.Map(lambda kv: TimestampedValue(kv, kv[1]))
        windowed = timed | beam.WindowInto(FixedWindows(10))
        side = p | "side" >> beam.Create([7])
        return {"asked": windowed | beam.ParDo(Asks(), beam.pvalue.AsSingleton(side))}

    assert harvest(spark_session, build)["asked"] == [
        ("a", 1, 7, "a", 1_000_000, "[0.0, 10.0)", 0, 3, ["bundle"], ["setup"]),
        ("b", 12, 7, "b", 12_000_000, "[10.0, 20.0)", 0, 3, ["bundle"], ["setup"]),
    ]


class Batched(beam.DoFn):  # type: ignore[misc]
    """Wants whole batches."""

    def process_batch(self, batch: np.ndarray) -> Iterator[np.ndarray]:
        assert isinstance(batch, np.ndarray)
        yield batch * 2

    def infer_output_type(self, input_type: Any) -> Any:
        return input_type


class Unbatched(beam.DoFn):  # type: ignore[misc]
    @beam.DoFn.yields_batches  # type: ignore[untyped-decorator]
    def process(self, element: int) -> Iterator[np.ndarray]:
        yield np.array([element, element + 1], dtype=np.int64)

    def infer_output_type(self, input_type: Any) -> Any:
        return np.int64

    def get_output_batch_type(self, input_type: Any) -> Any:
        from apache_beam.typehints.batch import NumpyArray

        return NumpyArray[np.int64, (beam.typehints.batch.N,)]


def halve(number: int) -> int:
    if number % 2:
        raise ValueError(f"odd: {number}")
    return number // 2


def sleep_long(number: int) -> int:
    if number == 3:
        time.sleep(60)
    return number


@pytest.mark.rare
def test_steps_that_may_fail(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        numbers = p | beam.Create(range(6))
        good, bad = numbers | beam.Map(halve).with_exception_handling()
        apart, bad_apart = numbers | "apart" >> beam.Map(halve).with_exception_handling(
            use_subprocess=True
        )
        quick, slow = numbers | "slow" >> beam.Map(sleep_long).with_exception_handling(
            timeout=8, use_subprocess=False
        )
        return {
            "good": good,
            "bad": bad | beam.MapTuple(lambda n, told: (n, told[1])),
            "apart": apart,
            "bad apart": bad_apart | "told" >> beam.MapTuple(lambda n, told: (n, told[1])),
            "quick": quick,
            "slow": slow | "which" >> beam.MapTuple(lambda n, told: n),
        }

    found = harvest(spark_session, build)
    assert found["good"] == found["apart"] == [0, 1, 2]
    assert [n for n, _ in found["bad"]] == [n for n, _ in found["bad apart"]] == [1, 3, 5]
    assert all("odd" in told for _, told in found["bad"])
    assert found["quick"] == [0, 1, 2, 4, 5]
    assert found["slow"] == [3]


def test_too_many_failures(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> None:
        (
            p
            | beam.Create(range(6))
            | "halve" >> beam.Map(halve).with_exception_handling(threshold=0.1)
        )

    with pytest.raises(BundleFailedError, match=r"3 / 6 = 0.5 > 0.1|threshold|failed"):
        run(spark_session, build)


def test_sketches_and_samples(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        numbers = p | beam.Create(range(1001))
        pairs = numbers | beam.Map(lambda n: (n % 2, n))
        return {
            "quantiles": numbers | stats.ApproximateQuantiles.Globally(5),
            "by key": pairs | stats.ApproximateQuantiles.PerKey(3),
            "unique": numbers | stats.ApproximateUnique.Globally(size=100),
            "sampled": pairs
            | beam.combiners.Sample.FixedSizePerKey(3)
            | beam.MapTuple(lambda key, some: (key, len(some), {n % 2 for n in some} == {key})),
            "smallest": pairs | beam.combiners.Top.SmallestPerKey(2),
            "to string": numbers | beam.Filter(lambda n: n < 3) | beam.ToString.Element(),
            "swapped": pairs | beam.KvSwap() | beam.Keys() | beam.combiners.Mean.Globally(),
        }

    found = harvest(spark_session, build, "--auto_unique_labels")
    assert found["quantiles"] == [[0, 250, 500, 750, 1000]]
    assert found["by key"] in ([(0, [0, 500, 1000]), (1, [1, n, 999])] for n in (499, 501))
    assert found["unique"][0] == pytest.approx(1001, rel=0.3)
    assert found["sampled"] == [(0, 3, True), (1, 3, True)]
    assert found["smallest"] == [(0, [0, 2]), (1, [1, 3])]
    assert found["to string"] == ["0", "1", "2"]
    assert found["swapped"] == [500.0]


def test_batches_of_arrays(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        numbers = p | beam.Create(range(100)).with_output_types(np.int64)
        return {
            "doubled": numbers | beam.ParDo(Batched()) | beam.Map(int),
            "made": numbers
            | beam.Filter(lambda n: n < 3)
            | "plain ints" >> beam.Map(int)
            | beam.ParDo(Unbatched())
            | "ints" >> beam.Map(int),
        }

    found = harvest(spark_session, build)
    assert found["doubled"] == list(range(0, 200, 2))
    assert found["made"] == [0, 1, 1, 2, 2, 3]


class Month(BoundedWindow):  # type: ignore[misc]
    """A window that is no interval, with a separate coder."""

    def __init__(self, number: int) -> None:
        super().__init__(Timestamp(100 * (number + 1)))
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Month) and other.number == self.number

    def __hash__(self) -> int:
        return self.number

    def __repr__(self) -> str:
        return f"month {self.number}"


class MonthCoder(Coder):  # type: ignore[misc]
    def encode(self, value: Month) -> bytes:
        return str(value.number).encode()

    def decode(self, encoded: bytes) -> Month:
        return Month(int(encoded))

    def is_deterministic(self) -> bool:
        return True


class Months(NonMergingWindowFn):  # type: ignore[misc]
    def assign(self, context: WindowFn.AssignContext) -> list[Month]:
        return [Month(context.timestamp.micros // 100_000_000)]

    def get_window_coder(self) -> MonthCoder:
        return MonthCoder()


def test_windows_of_any_shape_and_windows_set_again(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        timed = (
            p
            | beam.Create([("a", time) for time in range(0, 300, 30)])
            | beam.Map(lambda kv: TimestampedValue(kv, kv[1]))
        )
        monthly = timed | beam.WindowInto(Months())
        sums = monthly | beam.CombinePerKey(sum)
        again = sums | "again" >> beam.WindowInto(Sessions(150))
        return {
            "monthly": sums,
            "spread": monthly | beam.Reshuffle(),
            "again": again | "sum again" >> beam.CombinePerKey(sum),
            "at last": again
            | beam.WindowInto(GlobalWindows())
            | beam.GroupByKey()
            | beam.MapTuple(lambda key, values: (key, sorted(values))),
            "beside": timed
            | "other windows" >> beam.WindowInto(FixedWindows(300))
            | beam.Map(
                lambda kv, side: (kv, sorted(side)), beam.pvalue.AsList(sums | beam.Values())
            ),
        }

    ours = harvest(spark_session, build, "--auto_unique_labels")
    beams = harvest_on(FnApiRunner(), build, "--auto_unique_labels")
    for label in ("monthly", "spread", "again", "at last"):
        assert [(each.value, str(each.window)) for each in _sorted(ours, label)] == [
            (each.value, str(each.window)) for each in _sorted(beams, label)
        ]
        assert beams.kept[label], label
    assert ours["monthly"] == [
        ("a", 0 + 30 + 60 + 90),
        ("a", 120 + 150 + 180),
        ("a", 210 + 240 + 270),
    ]
    assert ours["again"] == [("a", 1350)]
    # Beam's runner does not find the month that the end of the main window falls into.
    assert {tuple(side) for _, side in ours["beside"]} == {(210 + 240 + 270,)}


def _sorted(found: Any, label: str) -> list[Any]:
    return sorted(found.kept[label], key=lambda each: (repr(each.value), str(each.window)))


YAML = """
type: chain
transforms:
  - type: Create
    config:
      elements:
        - {word: to, n: 1}
        - {word: be, n: 2}
        - {word: to, n: 3}
  - type: Filter
    config: {language: python, keep: "n > 0"}
  - type: MapToFields
    config:
      language: python
      append: true
      fields: {twice: "n * 2"}
  - type: Combine
    config:
      group_by: word
      combine: {total: {value: twice, fn: sum}}
"""


def test_yaml(spark_session: Any) -> None:
    from apache_beam.yaml.yaml_transform import YamlTransform

    def build(p: beam.Pipeline) -> dict[str, Any]:
        rows = p | YamlTransform(YAML)
        return {"totals": rows | beam.Map(lambda row: (row.word, row.total))}

    assert harvest(spark_session, build)["totals"] == [("be", 4), ("to", 8)]


@pytest.mark.rare
def test_inference_with_a_small_model(spark_session: Any, tmp_path: Any) -> None:
    import pickle

    from apache_beam.ml.inference.base import RunInference
    from apache_beam.ml.inference.sklearn_inference import SklearnModelHandlerNumpy
    from sklearn.linear_model import LinearRegression

    path = tmp_path / "model.pkl"
    x = np.arange(10.0).reshape(-1, 1)
    path.write_bytes(pickle.dumps(LinearRegression().fit(x, 3 * x[:, 0] + 1)))

    def build(p: beam.Pipeline) -> dict[str, Any]:
        asked = p | beam.Create([np.array([20.0]), np.array([0.0])])
        predicted = asked | RunInference(SklearnModelHandlerNumpy(model_uri=str(path)))
        return {"predicted": predicted | beam.Map(lambda each: round(float(each.inference), 6))}

    assert harvest(spark_session, build)["predicted"] == [1.0, 61.0]


def test_empty_everything(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        nothing: Any = p | beam.Create([]).with_output_types(tuple[str, int])
        timed = nothing | beam.WindowInto(Sessions(5))

        def listed(key: str, values: Iterable[int]) -> list[int]:
            return list(values)

        return {
            "groups": timed | beam.GroupByKey() | beam.MapTuple(listed),
            "sums": timed | beam.CombinePerKey(sum),
            "joined": {"a": timed, "b": timed} | beam.CoGroupByKey(),
            "flat": (nothing, nothing) | beam.Flatten(),
            "none": () | beam.Flatten(pipeline=p),
            "spread": timed | beam.Reshuffle(),
            "beside": nothing | "beside" >> beam.Map(lambda x, y: x, beam.pvalue.AsList(nothing)),
            "even": (nothing | beam.Partition(lambda _, count: 0, 2))[1],
            "count": nothing | beam.combiners.Count.Globally(),
            "batches": nothing | beam.BatchElements(),
        }

    found = harvest(spark_session, build, "--auto_unique_labels")
    assert found["count"] == [0]
    assert all(not kept for label, kept in found.kept.items() if label != "count")
