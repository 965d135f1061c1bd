"""Elements of classes of the program's main module, as scripts and notebooks have them."""

from pathlib import Path

import pytest

from tests.spark.harvest import PROCESS
from tests.spark.test_session import run_script

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCRIPT = """
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

    from neighbour import Neighbour  # beside this file

    def found_later(n):
        from later import Later  # where the path leads that is added below
        return Later(n)

    KINDS = (Plain, Slots, Data, Frozen, Colour, lambda n: Pair(n, "x"), Failure, Neighbour)
    TYPES = [Plain, Slots, Data, Frozen, Colour, Pair, Failure, Neighbour]

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

    def run(make):
        global COUNT
        COUNT += 1
        Failure.count = COUNT
        with beam.Pipeline(options=PipelineOptions(FLAGS)) as p:
            given = p | beam.Create([make(1)])
            made = p | "one" >> beam.Create([1]) | "make" >> beam.Map(make)
            all_ = (given, made) | beam.Flatten()
            ways = {
                "fused": all_ | "same" >> beam.Map(lambda x: x),
                "spread": all_ | beam.Reshuffle(),
                "grouped": all_ | beam.Map(lambda x: (1, x)) | beam.GroupByKey()
                | beam.FlatMap(lambda pair: pair[1]),
                "held": all_ | "pair" >> beam.Map(lambda x: (1, x)) | beam.ParDo(Holds()),
                "in processes": all_ | beam.ParDo(Spread()),
            }
            names = [
                way | f"name {label}" >> beam.Map(name, beam.pvalue.AsList(made))
                for label, way in ways.items()
            ]
            counts = names | "all" >> beam.Flatten() | beam.combiners.Count.PerElement()
            counts | beam.io.WriteToText(FOLDER + "/found", append_trailing_newlines=True)

    SparkSession.builder.master("local[1]").getOrCreate()
    for make in KINDS:
        run(make)
        with open(FOLDER + "/found-00000-of-00001") as found:
            print(found.read().strip())

    sys.path.append(FOLDER + "/more")
    TYPES.append(type(found_later(1)))
    run(found_later)
    with open(FOLDER + "/found-00000-of-00001") as found:
        print(found.read().strip())

    class Data:  # a cell of a notebook, changed and run again
        def __init__(self, n):
            self.n = self.version = n

    TYPES.append(Data)
    run(Data)
    with open(FOLDER + "/found-00000-of-00001") as found:
        print(found.read().strip())
    """


@pytest.mark.parametrize(
    "flags", [(), pytest.param(PROCESS, marks=pytest.mark.rare)], ids=["embedded", "process"]
)
def test_elements_of_all_kinds_go_all_ways(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """In a session of the program's own, whose workers would run the first Python of ``PATH``."""
    (tmp_path / "neighbour.py").write_text("class Neighbour(list):\n    def __init__(self, n): ...")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "later.py").write_text("class Later(str): ...")
    flags = ("--runner=SparkPortableRunner", *flags)
    out, _ = run_script(
        f"    FOLDER = {str(tmp_path)!r}\n    FLAGS = {flags!r}\n{SCRIPT}", tmp_path
    )
    names = ["Plain", "Slots", "Data", "Frozen", "Colour", "Pair", "Failure"]
    names += ["Neighbour", "Later", "Data"]
    assert out.splitlines() == [repr((name, 10)) for name in names]
