"""Side inputs: what readers see, from where, and how much."""

from typing import Any

import apache_beam as beam
import pytest
from apache_beam.pvalue import AsDict, AsIter, AsList, AsMultiMap, AsSingleton
from apache_beam.transforms.window import FixedWindows, SlidingWindows, TimestampedValue

from beam_spark_runner.core.errors import BundleFailedError
from tests.harvest import SPREAD, harvest, run


def test_views(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        numbers = p | "numbers" >> beam.Create([1, 2, 3])
        pairs = p | "pairs" >> beam.Create([("a", 1), ("b", 2), ("b", 3)])
        unique = p | "unique" >> beam.Create([("a", 1), ("b", None)])
        one = p | "one" >> beam.Create([{"x": [1]}])
        none = p | "none" >> beam.Create([])
        no_pairs = p | "no pairs" >> beam.Create([]).with_output_types(tuple[str, int])
        main = p | "main" >> beam.Create(["a", "b", "z"])
        main_spread = main | beam.Reshuffle()
        return {
            "all kinds": main_spread
            | beam.Map(
                lambda x, single, several, listed, table, many: (
                    x,
                    single["x"],
                    sorted(several),
                    [*sorted(listed), len(listed)],
                    table.get(x, "missing"),
                    sorted(many[x]),
                ),
                single=AsSingleton(one),
                several=AsIter(numbers),
                listed=AsList(numbers),
                table=AsDict(unique),
                many=AsMultiMap(pairs),
            ),
            "empty": main
            | "empty"
            >> beam.Map(
                lambda x, single, several, listed, table, many: (
                    single,
                    list(several),
                    list(listed),
                    dict(table),
                    list(many["q"]),
                ),
                AsSingleton(none, default_value="default"),
                AsIter(none),
                AsList(none),
                AsDict(no_pairs),
                AsMultiMap(no_pairs),
            ),
            # Two steps read one view; one collection is read in two ways; args are mixed.
            "again": main
            | "first" >> beam.Map(lambda x, n, table: (x, table.get(x), n), 7, AsDict(unique))
            | "second"
            >> beam.Map(
                lambda each, table, plain: (*each, table.get(each[0]), len(plain)),
                AsDict(unique),
                plain=AsList(unique),
            ),
            "in a filter": main | beam.Filter(lambda x, keys: x in keys, AsDict(unique)),
            "in a flatmap": main
            | beam.FlatMap(lambda x, ns: [x * n for n in ns] if x == "z" else [], AsIter(numbers)),
            "ancestor": numbers
            | beam.Map(lambda x: x * 10)
            | "sum up" >> beam.Map(lambda x, all_of: (x, sum(all_of)), AsIter(numbers)),
            "itself": numbers
            | "itself" >> beam.Map(lambda x, all_of: (x, max(all_of)), AsList(numbers)),
            "grouped": main
            | "read groups"
            >> beam.Map(
                lambda x, groups: (x, sorted((k, sorted(vs)) for k, vs in groups)),
                AsIter(pairs | beam.GroupByKey()),
            ),
            "grouped dict": main
            | "read dict"
            >> beam.Map(
                lambda x, groups: (x, sorted(groups.get(x, ()))),
                AsDict(pairs | "again" >> beam.GroupByKey()),
            ),
            "impulse": main
            | "impulse" >> beam.Map(lambda x, b: (x, b), AsSingleton(p | beam.Impulse())),
        }

    found = harvest(spark_session, build)
    common = ([1], [1, 2, 3], [1, 2, 3, 3])
    assert found["all kinds"] == [
        ("a", *common, 1, [1]),
        ("b", *common, None, [2, 3]),
        ("z", *common, "missing", []),
    ]
    assert found["empty"] == [("default", [], [], {}, [])] * 3
    assert sorted(found["again"], key=str) == [
        ("a", 1, 7, 1, 2),
        ("b", None, 7, None, 2),
        ("z", None, 7, None, 2),
    ]
    assert found["in a filter"] == ["a", "b"]
    assert found["in a flatmap"] == ["z", "zz", "zzz"]
    assert found["ancestor"] == [(10, 6), (20, 6), (30, 6)]
    assert found["itself"] == [(1, 3), (2, 3), (3, 3)]
    groups = [("a", [1]), ("b", [2, 3])]
    assert found["grouped"] == [(x, groups) for x in "abz"]
    assert found["grouped dict"] == [("a", [1]), ("b", [2, 3]), ("z", [])]
    assert found["impulse"] == [(x, b"") for x in "abz"]


def test_views_by_window(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        timed = p | beam.Create(range(30)) | beam.Map(lambda n: TimestampedValue(n, n))
        main = timed | "main" >> beam.WindowInto(FixedWindows(10))
        tens = timed | "tens" >> beam.WindowInto(FixedWindows(10))
        twenties = timed | "twenties" >> beam.WindowInto(FixedWindows(20))
        slid = timed | "slid" >> beam.WindowInto(SlidingWindows(20, 10))
        keyed = tens | beam.Map(lambda n: (n % 2, n))
        sums = keyed | beam.CombinePerKey(sum)
        mean = tens | beam.CombineGlobally(beam.combiners.MeanCombineFn()).as_singleton_view()
        everywhere = p | "everywhere" >> beam.Create(["e"])
        return {
            "same": main | beam.Map(lambda n, side: (n, sorted(side)), AsIter(tens)),
            "wider": main | "wider" >> beam.Map(lambda n, side: (n, len(side)), AsList(twenties)),
            "sliding": slid
            | "sliding"
            >> beam.Map(
                lambda n, side, window=beam.DoFn.WindowParam: (
                    n,
                    int(window.start.micros // 1_000_000),
                    sorted(side),
                ),
                AsIter(tens),
            ),
            "keyed": main
            | "keyed"
            >> beam.Map(
                lambda n, many, total, mean: (n, sorted(many[n % 2]), total[n % 2], mean),
                AsMultiMap(keyed),
                AsDict(sums),
                mean,
            ),
            "global side": main
            | "global side" >> beam.Map(lambda n, x: (n, x), AsSingleton(everywhere)),
        }

    found = harvest(spark_session, build)

    def ten(n: int) -> list[int]:
        return list(range(n // 10 * 10, n // 10 * 10 + 10))

    assert found["same"] == [(n, ten(n)) for n in range(30)]
    assert found["wider"] == [(n, 20 if n < 20 else 10) for n in range(30)]
    # The side input's window is the one that holds the end of the main input's.
    assert found["sliding"] == sorted(
        (n, start, ten(start + 10) if 0 <= start + 10 < 30 else [])
        for n in range(30)
        for start in (n // 10 * 10 - 10, n // 10 * 10)
    )
    assert found["keyed"] == [
        (n, ten(n)[n % 2 :: 2], sum(ten(n)[n % 2 :: 2]), sum(ten(n)) / 10) for n in range(30)
    ]
    assert found["global side"] == [(n, "e") for n in range(30)]


@pytest.mark.rare
def test_chains_of_side_inputs(spark_session: Any) -> None:
    """Each link is a separate Spark job; the main input passes them all by."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        main = p | beam.Create(range(100)) | beam.Map(lambda n: (n % 10, n))
        sums = main | beam.CombinePerKey(sum)
        depth = sums | beam.Values() | beam.CombineGlobally(max)
        for link in range(4):
            depth = (
                main
                | f"link {link}" >> beam.Map(lambda pair, more: (pair[0], more), AsSingleton(depth))
                | f"group {link}" >> beam.GroupByKey()
                | f"one {link}" >> beam.Map(lambda group: max(group[1]) + 1)
                | f"join {link}" >> beam.CombineGlobally(max)
            )
        spread = main | beam.Reshuffle()
        return {
            "depth": depth,
            "both": (sums, spread)
            | beam.Flatten()
            | beam.Map(lambda pair, n: (*pair, n), AsSingleton(depth)),
            "after": spread
            | "after" >> beam.Map(lambda pair, n: (pair[0], n), AsSingleton(depth))
            | "group after" >> beam.GroupByKey()
            | "sum after" >> beam.MapTuple(lambda key, ns: (key, sum(ns))),
        }

    found = harvest(spark_session, build)
    sums = [(k, sum(range(k, 100, 10))) for k in range(10)]
    depth = max(total for _, total in sums) + 4
    assert found["depth"] == [depth]
    assert found["both"] == sorted(
        (*pair, depth) for pair in [*sums, *((n % 10, n) for n in range(100))]
    )
    assert found["after"] == [(k, 10 * depth) for k in range(10)]


def test_what_waits_for_a_side_input_stays_spread(spark_session: Any) -> None:
    """Rows that are kept for a later Spark job are spread as if they had not been."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        main = p | beam.Create(range(1000))
        total = main | beam.CombineGlobally(sum).as_singleton_view()
        rows = main | beam.Map(lambda n, m: (n, m), total)
        kept = main | "kept" >> beam.Reshuffle() | "use" >> beam.Map(lambda n, m: n + m, total)
        last = (
            main
            | "last" >> beam.Reshuffle()
            | "len" >> beam.Map(lambda n, listed: n + len(listed), AsList(main))
        )
        return {"rows": rows, "shuffled": rows | beam.Reshuffle(), "kept": kept, "last": last}

    found = harvest(spark_session, build, SPREAD)
    assert found["kept"] == [n + 499_500 for n in range(1000)]
    assert found["last"] == [n + 1000 for n in range(1000)]
    for label in found.kept:
        assert len(found.partitions(label)) > 1, label


@pytest.mark.rare
def test_a_million_entries(spark_session: Any) -> None:
    count, share = 1_000_000, 10_000

    def build(p: beam.Pipeline) -> dict[str, Any]:
        entries = (
            p
            | beam.Create(range(100))
            | beam.FlatMap(
                lambda part: ((n, -n) for n in range(part * share, (part + 1) * share))
            ).with_output_types(tuple[int, int])
        )
        main = p | "main" >> beam.Create([0, 1, 123_456, count - 1, count])
        return {
            "dict": main | beam.Map(lambda n, it: (n, it.get(n), len(it)), AsDict(entries)),
            "list": main
            | "list"
            >> beam.Map(
                lambda n, listed: (n, len(listed), sum(listed)), AsList(entries | beam.Keys())
            ),
        }

    found = harvest(spark_session, build)
    assert found["dict"] == [
        (n, -n if n < count else None, count) for n in (0, 1, 123_456, count - 1, count)
    ]
    total = count * (count - 1) // 2
    assert found["list"] == [(n, count, total) for n in (0, 1, 123_456, count - 1, count)]


def test_a_singleton_that_is_not_single(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> None:
        side = p | "side" >> beam.Create([1, 2])
        p | beam.Create([0]) | "read it" >> beam.Map(lambda n, s: s, AsSingleton(side))

    with pytest.raises(BundleFailedError, match=r"read it: ValueError.*singleton") as caught:
        run(spark_session, build)
    assert caught.value.step == "read it"


def test_a_singleton_of_nothing_is_what_beam_makes_of_it(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        nothing = p | "nothing" >> beam.Create([])
        read = p | beam.Create([0]) | beam.Map(lambda _, s: type(s).__name__, AsSingleton(nothing))
        return {"read": read}

    assert harvest(spark_session, build)["read"] == ["EmptySideInput"]


def test_a_key_that_cannot_be_in_a_dict(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> None:
        side = p | "side" >> beam.Create([([1], 2)])
        p | beam.Create([0]) | "read it" >> beam.Map(lambda n, s: len(s), AsDict(side))

    with pytest.raises(BundleFailedError, match="unhashable type: 'list'") as caught:
        run(spark_session, build)
    assert caught.value.step == "read it"


@pytest.mark.parametrize("cache_mb", [0, 1, 100])
def test_decoded_values_are_shared_as_far_as_the_cache_goes(
    spark_session: Any, cache_mb: int
) -> None:
    """What two elements see is one object only if it was kept; then marks on it add up."""

    def mark(_: int, several: Any) -> int:
        for each in several:
            each[1] += 1
        return sum(each[1] for each in several)

    def build(p: beam.Pipeline) -> dict[str, Any]:
        side = p | "side" >> beam.Create(range(5)) | beam.Map(lambda _: ["x" * 400_000, 0])
        main = p | beam.Create([(0, n) for n in range(3)]) | beam.GroupByKey()
        each = main | beam.FlatMapTuple(lambda _, ns: ns)
        return {"marks": each | "mark" >> beam.Map(mark, AsIter(side))}

    found = harvest(spark_session, build, f"--max_cache_memory_usage_mb={cache_mb}")
    assert found["marks"] == ([5, 10, 15] if cache_mb == 100 else [0, 0, 0])
