"""A program whose elements are of classes of its main module."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.spark.test_session import run_script

_SCRIPT = """
    import dataclasses, enum, multiprocessing, sys, typing
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.transforms.userstate import BagStateSpec
    from pyspark.sql import SparkSession

    class Plain:
        def __init__(self, n):
            self.n = n

    class Slots:
        __slots__ = ("n",)
        def __init__(self, n):
            self.n = n

    @dataclasses.dataclass
    class Data:
        n: int

    @dataclasses.dataclass(frozen=True)
    class Frozen:
        n: int

    class Colour(enum.Enum):
        RED = 1

    class Pair(typing.NamedTuple):
        n: int
        name: str

    class Failure(Exception):
        count = 0  # of pipelines before this one

    class Outer:
        class Inner:
            def __init__(self, n):
                self.n = n

    def found_later(n):
        from later import Later  # where the path leads that is added below
        return Later(n)

    # dill makes no copy of an Enum, with any runner; code may use its name.
    KINDS = [Plain, Slots, Data, Frozen, lambda n: Colour(n), lambda n: Pair(n, "x"), Failure,
             Outer.Inner]
    TYPES = [Plain, Slots, Data, Frozen, Colour, Pair, Failure, Outer.Inner]
    if HAS_MODULES:
        from neighbour import Neighbour  # beside this file
        KINDS.append(Neighbour)
        TYPES.append(Neighbour)

    class Holds(beam.DoFn):
        BAG = BagStateSpec("bag", beam.coders.FastPrimitivesCoder())
        def process(self, pair, bag=beam.DoFn.StateParam(BAG)):
            bag.add(pair[1])
            yield list(bag.read())[-1]

    class Spread(beam.DoFn):
        def process(self, element):
            with multiprocessing.get_context("fork").Pool(1) as pool:
                yield from pool.map(copied, [element])

    copied = __import__("copy").copy

    def name(element, *others):
        assert Failure.count == COUNT  # as the program had set it
        assert type(element) in TYPES, type(element)  # those that the DoFn brought along
        assert all(type(each) in TYPES for other in others for each in other)
        return type(element).__name__

    COUNT = 0

    def ways(p, make):
        given = p | beam.Create([make(1)])
        made = p | "one" >> beam.Create([1]) | "make" >> beam.Map(make)
        kept = p | "two" >> beam.Create([1]) | "keep" >> beam.Map(lambda _, made=KEPT: made)
        all_ = (given, made, kept) | beam.Flatten()
        ways = {
            "fused": all_ | "same" >> beam.Map(lambda x: x),
            "spread": all_ | beam.Reshuffle(),
            "grouped": all_ | beam.Map(lambda x: (1, x)) | beam.GroupByKey()
            | beam.FlatMap(lambda pair: pair[1]),
            "held": all_ | "pair" >> beam.Map(lambda x: (1, x)) | beam.ParDo(Holds()),
            "in processes": all_ | beam.ParDo(Spread()),
        }
        return [
            way | f"name {label}" >> beam.Map(name, beam.pvalue.AsList(made))
            for label, way in ways.items()
        ] | "all" >> beam.Flatten()

    KEPT = Plain(0)

    class Ways(beam.PTransform):
        def __init__(self, make):
            self.make = make
        def expand(self, p):
            return ways(p, self.make)

    def run(*makes):
        global COUNT
        COUNT += 1
        Failure.count = COUNT
        with beam.Pipeline(options=PipelineOptions(FLAGS)) as p:
            names = [p | str(index) >> Ways(make) for index, make in enumerate(makes)]
            counts = names | beam.Flatten() | beam.combiners.Count.PerElement()
            counts | beam.io.WriteToText(FOLDER + "/found", append_trailing_newlines=True)
        with open(FOLDER + "/found-00000-of-00001") as found:
            print(sorted(map(eval, found)))

    if not HAS_MODULES:
        found_later = KINDS[0]
    if MASTER:
        SparkSession.builder.master(MASTER).config(map=CONF).getOrCreate()
    run(*KINDS)

    sys.path.append(FOLDER + "/more")
    TYPES.append(type(found_later(1)))
    run(found_later)

    class Data:  # a cell of a notebook, changed and run again
        def __init__(self, n):
            self.n = self.version = n

    TYPES.append(Data)
    run(Data)
    """

NAMES = ("Plain", "Slots", "Data", "Frozen", "Colour", "Pair", "Failure", "Inner")


def run_kinds(
    folder: Path,
    library: str,
    *flags: str,
    master: str = "",
    conf: Mapping[str, str] = MappingProxyType({}),
    has_modules: bool = False,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Run the program, and check that all elements had the classes that the code knows.

    Args:
        folder: For the files of the program.
        library: Pickles the code.
        flags: Options of the pipelines.
        master: Of the program's own session; empty: the runner makes one.
        conf: Of that session.
        has_modules: Whether there are elements of classes of modules next to the program, too.
        environment: Variables of the program.
    """
    if library == "dill":
        pytest.importorskip("dill", reason="the test extra installs it")
    (folder / "neighbour.py").write_text("class Neighbour(list):\n    def __init__(self, n): ...")
    (folder / "more").mkdir()
    (folder / "more" / "later.py").write_text("class Later(str): ...")
    flags = ("--runner=SparkPortableRunner", f"--pickle_library={library}", *flags)
    constants = {
        "FOLDER": str(folder),
        "FLAGS": flags,
        "MASTER": master,
        "CONF": dict(conf),
        "HAS_MODULES": has_modules,
    }
    heads = "".join(f"    {name} = {value!r}\n" for name, value in constants.items())
    out, _ = run_script(f"{heads}{_SCRIPT}", folder, **environment)
    names = [*NAMES, "Neighbour"] if has_modules else NAMES
    later = ("Later", 10) if has_modules else ("Plain", 10)
    assert [eval(line) for line in out.splitlines()] == [
        _counts(*((name, 10) for name in names), ("Plain", 5 * len(names))),
        _counts(later, ("Plain", 5)),
        _counts(("Data", 10), ("Plain", 5)),
    ]


def _counts(*parts: tuple[str, int]) -> list[tuple[str, int]]:
    found: dict[str, int] = {}
    for name, count in parts:
        found[name] = found.get(name, 0) + count
    return sorted(found.items())
