"""Impulse, Create, ParDo, Flatten and the life of a DoFn."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms.window import FixedWindows, GlobalWindow, TimestampedValue
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import PaneInfo, PaneInfoTiming, WindowedValue

from tests.harvest import SPREAD, harvest


def test_impulse_and_create(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        return {
            "impulse": p | beam.Impulse(),
            "none": p | "none" >> beam.Create([]),
            "one": p | "one" >> beam.Create(["x"]),
            "many": p | "many" >> beam.Create(range(10_000)),
            "unspread": p | "unspread" >> beam.Create([3, 1, 2], reshuffle=False),
        }

    found = harvest(spark_session, build, SPREAD)
    ((value, timestamp, window, pane, _),) = found.kept["impulse"]
    assert (value, timestamp, window) == (b"", MIN_TIMESTAMP, GlobalWindow())
    assert (pane.is_first, pane.is_last, pane.index) == (True, True, 0)
    assert found["none"] == []
    assert found["one"] == ["x"]
    assert found["many"] == list(range(10_000))
    assert len(found.partitions("many")) > 1
    assert found["unspread"] == [1, 2, 3]


class Sort(beam.DoFn):  # type: ignore[misc]
    def process(self, number: int) -> Iterator[Any]:
        yield number
        if number % 2 == 0:
            yield beam.pvalue.TaggedOutput("even", str(number))
        if number % 3 == 0:
            yield beam.pvalue.TaggedOutput("third", {"n": number})


def test_tagged_outputs(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        numbers = p | beam.Create(range(7))
        outputs = numbers | beam.ParDo(Sort()).with_outputs("even", "third", "never", main="all")
        only = numbers | "one output" >> beam.ParDo(Sort()).with_outputs("even", main="all")
        first, second = numbers | beam.Partition(lambda n, count: n % count, 2)
        return {
            "all": outputs.all,
            "even": outputs.even,
            "third": outputs.third | beam.Map(lambda row: row["n"]),
            "never": outputs["never"],
            "grouped": outputs.even | beam.Map(lambda x: (x, 1)) | beam.GroupByKey() | beam.Keys(),
            "only": only.even,
            "first": first,
            "second": second,
        }

    found = harvest(spark_session, build)
    assert found["all"] == list(range(7))
    assert found["even"] == found["grouped"] == found["only"] == ["0", "2", "4", "6"]
    assert found["third"] == [0, 3, 6]
    assert found["never"] == []
    assert (found["first"], found["second"]) == ([0, 2, 4, 6], [1, 3, 5])


class Lived(beam.DoFn):  # type: ignore[misc]
    """Leaves one file for each call of a method of its life."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def _leave(self, what: str) -> None:
        Path(self._folder, f"{what}-{uuid.uuid4().hex}").touch()

    def setup(self) -> None:
        self._leave("setup")
        self._is_set_up = True

    def start_bundle(self) -> None:
        self._leave("start")
        self._sum = 0

    def process(self, number: int) -> None:
        assert self._is_set_up
        self._sum += number

    def finish_bundle(self) -> Iterator[Any]:
        self._leave("finish")
        window = GlobalWindow()
        yield WindowedValue(self._sum, window.max_timestamp(), [window])
        yield beam.pvalue.TaggedOutput(
            "late", WindowedValue(-self._sum, window.max_timestamp(), [window])
        )

    def teardown(self) -> None:
        self._leave("teardown")


def test_life_of_a_dofn(spark_session: Any, tmp_path: Path) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        sums = (
            p
            | beam.Create(range(1000))
            | beam.ParDo(Lived(str(tmp_path))).with_outputs("late", main="sums")
        )
        # After an exchange, and as a side input: what finish_bundle emits goes all ways.
        total = sums.sums | beam.CombineGlobally(sum)
        return {
            "sums": sums.sums,
            "total": total,
            "check": p
            | beam.Impulse()
            | beam.Map(lambda _, late: sum(late), beam.pvalue.AsIter(sums.late)),
        }

    def count(what: str) -> int:
        return len(list(tmp_path.glob(f"{what}-*")))

    found = harvest(spark_session, build, SPREAD)
    assert found["total"] == [499_500] == [sum(found["sums"])]
    assert found["check"] == [-499_500]
    assert count("start") == count("finish") == len(found["sums"]) > 1
    # Python workers are kept, and a stage within them: one setup per worker, two workers.
    assert 1 <= count("setup") <= 2
    assert count("teardown") == count("setup")


def test_flatten(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        numbers = p | "numbers" >> beam.Create([1, 2]).with_output_types(int)
        anything = p | "anything" >> beam.Create([3.5, "x", None, (1, "y")])
        pairs = p | "pairs" >> beam.Create([("a", 1), ("a", 2), ("b", 3)])
        grouped = pairs | beam.GroupByKey() | beam.MapTuple(lambda key, values: (key, sum(values)))
        bare = pairs | "bare" >> beam.GroupByKey()
        both_bare = (bare, bare) | "both bare" >> beam.Flatten()
        empty = p | "empty" >> beam.Create([])
        return {
            "coders": (numbers, anything) | "coders" >> beam.Flatten() | beam.Map(repr),
            "coders grouped": (numbers, anything)
            | "coders 2" >> beam.Flatten()
            | beam.Map(lambda x: (repr(x), x))
            | "group" >> beam.GroupByKey()
            | "keys" >> beam.Keys(),
            "nothing": () | "nothing" >> beam.Flatten(pipeline=p),
            "nothing counted": ()
            | "nothing to count" >> beam.Flatten(pipeline=p)
            | beam.combiners.Count.Globally(),
            "itself": (numbers, numbers) | "itself" >> beam.Flatten(),
            "itself spread": (numbers, numbers, empty)
            | "itself 2" >> beam.Flatten()
            | beam.Reshuffle(),
            "groups": (pairs, grouped) | "groups" >> beam.Flatten(),
            "groups regrouped": (pairs, grouped)
            | "groups 2" >> beam.Flatten()
            | "regroup" >> beam.CombinePerKey(sum),
            "bare groups": both_bare | beam.MapTuple(lambda key, values: (key, sorted(values))),
            "groups aside": p
            | beam.Impulse()
            | beam.FlatMap(
                lambda _, side: [(key, sorted(values)) for key, values in side],
                beam.pvalue.AsList(both_bare),
            ),
        }

    found = harvest(spark_session, build)
    assert found["coders"] == sorted(map(repr, [1, 2, 3.5, "x", None, (1, "y")]))
    assert found["coders grouped"] == found["coders"]
    assert found["nothing"] == []
    assert found["nothing counted"] == [0]
    assert found["itself"] == found["itself spread"] == [1, 1, 2, 2]
    assert found["groups"] == [("a", 1), ("a", 2), ("a", 3), ("b", 3), ("b", 3)]
    assert found["groups regrouped"] == [("a", 6), ("b", 6)]
    assert found["bare groups"] == [("a", [1, 2])] * 2 + [("b", [3])] * 2
    assert found["groups aside"] == found["bare groups"]


def test_types_of_all_kinds(spark_session: Any) -> None:
    nested = {"a": [1, (2.5, None)], "b": {"c": frozenset({b"x"})}}

    def build(p: beam.Pipeline) -> dict[str, Any]:
        things = p | beam.Create([None, "", b"", 0, -(2**62), 2**100, 1.5, True, nested, [], ()])
        keyed = p | "keyed" >> beam.Create([(None, 1), (None, None), ("", 2), (b"", 3)])
        typed = p | "typed" >> beam.Create([("k", 1)]).with_output_types(tuple[str, int])
        return {
            "things": things | beam.Reshuffle() | beam.Map(repr),
            "keyed": keyed
            | beam.GroupByKey()
            | beam.MapTuple(lambda key, values: (repr(key), sorted(map(repr, values)))),
            "untyped": things
            | "untyped" >> beam.Map(lambda x: (repr(x), x))
            | "group untyped" >> beam.GroupByKey()
            | "show" >> beam.MapTuple(lambda key, values: (key, repr(list(values)))),
            "typed": typed
            | "group typed" >> beam.GroupByKey()
            | "list" >> beam.MapTuple(lambda key, values: (key, list(values))),
        }

    found = harvest(spark_session, build)
    things: list[Any] = [None, "", b"", 0, -(2**62), 2**100, 1.5, True, nested, [], ()]
    assert found["things"] == sorted(map(repr, things))
    assert found["keyed"] == [("''", ["2"]), ("None", ["1", "None"]), ("b''", ["3"])]
    assert found["untyped"] == sorted((repr(x), repr([x])) for x in things)
    assert found["typed"] == [("k", [1])]


@pytest.mark.parametrize(
    ("flags", "timing"),
    [
        ((), PaneInfoTiming.LATE),
        (("--update_compatibility_version=2.64.0",), PaneInfoTiming.UNKNOWN),
    ],
)
def test_reshuffle_keeps_panes_unless_it_is_to_be_an_old_one(
    spark_session: Any, flags: tuple[str, ...], timing: int
) -> None:
    pane = PaneInfo(False, False, PaneInfoTiming.LATE, 1, 1)
    element = WindowedValue("late", 33, [GlobalWindow()], pane)
    found = harvest(
        spark_session, lambda p: {"late": p | beam.Create([element]) | beam.Reshuffle()}, *flags
    )
    assert found.timed("late") == [("late", 33.0)]
    assert [each.pane.timing for each in found.kept["late"]] == [timing]


def test_reshuffle_keeps_time_and_windows(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        timed = (
            p
            | beam.Create(range(50))
            | beam.Map(lambda n: TimestampedValue(n, n + 0.25))
            | beam.WindowInto(FixedWindows(10))
        )
        return {
            "elements": timed | beam.Reshuffle(),
            "pairs": timed | beam.Map(lambda n: (n % 3, n)) | "pairs" >> beam.Reshuffle(),
        }

    found = harvest(spark_session, build, SPREAD)
    assert found.timed("elements") == [(n, n + 0.25) for n in range(50)]
    assert all(each.window.start == each.value // 10 * 10 for each in found.kept["elements"])
    assert len(found.partitions("elements")) > 1
    assert found.timed("pairs") == sorted(((n % 3, n), n + 0.25) for n in range(50))
    assert all(each.window.start == each.value[1] // 10 * 10 for each in found.kept["pairs"])
