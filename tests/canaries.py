"""Pipelines in which all that is pickled notes the process that unpickles it."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.coders import Coder
from apache_beam.coders.coders import IntervalWindowCoder
from apache_beam.internal import pickler
from apache_beam.io.restriction_trackers import OffsetRange
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_runner_api_pb2 as pb
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, AfterWatermark
from apache_beam.transforms.userstate import (
    BagStateSpec,
    CombiningValueStateSpec,
    ReadModifyWriteStateSpec,
    TimerSpec,
    on_timer,
)
from apache_beam.transforms.window import IntervalWindow, TimestampedValue, WindowFn
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import BytesValue

from beam_spark_runner.core import urns
from beam_spark_runner.portable.payloads import COMBINE_URNS, PAR_DO_URNS
from tests.spark.lanes import Lanes
from tests.spark.restrictions import Counting

PICKLED = frozenset(
    {
        python_urns.PICKLED_CODER,
        python_urns.PICKLED_COMBINE_FN,
        python_urns.PICKLED_DOFN_INFO,
        python_urns.PICKLED_TRANSFORM,
        python_urns.PICKLED_VIEWFN,
        python_urns.PICKLED_WINDOWFN,
        python_urns.PICKLED_WINDOW_MAPPING_FN,
    }
)
HARNESS = "apache_beam.runners.worker.sdk_worker_main"
_NOTE = (
    "[__import__('pathlib').Path({folder!r}, str(__import__('os').getpid())).write_bytes("
    "__import__('pathlib').Path('/proc/self/cmdline').read_bytes()), kept][1]"
)


class _Canary:
    """Becomes what it stands for when it is unpickled, anywhere: only builtins are needed."""

    def __init__(self, folder: Path, kept: Any) -> None:
        self._folder, self._kept = folder, kept

    def __reduce__(self) -> Any:
        return eval, (_NOTE.format(folder=str(self._folder)), {"kept": self._kept})


class Canary(NamedTuple):
    """A payload that notes each process that unpickles it, in a separate folder."""

    urn: str
    folder: Path
    load: Callable[[], Any]

    def command_lines(self) -> dict[int, str]:
        """Return the processes that have unpickled it."""
        return {
            int(note.name): note.read_bytes().replace(b"\0", b" ").decode()
            for note in self.folder.iterdir()
        }


class Canaries:
    """Puts canaries in the place of all that is pickled in a pipeline.

    Args:
        folder: Gets a folder for each canary.
        pipeline: The pipeline, which is changed.
    """

    def __init__(self, folder: Path, pipeline: pb.Pipeline) -> None:
        self._folder = folder
        self.all: dict[str, Canary] = {}
        components = pipeline.components
        for id_, coder in components.coders.items():
            self._in_spec(f"coder {id_}", coder.spec)
        for id_, strategy in components.windowing_strategies.items():
            self._in_spec(f"strategy {id_}", strategy.window_fn)
        for id_, transform in components.transforms.items():
            self._in_transform(f"step {transform.unique_name or id_}", transform.spec)
            self._beside(f"step {transform.unique_name or id_}", transform)
            transform.annotations["canary"] = self._new("annotation", f"annotation {id_}", None)
        for id_, collection in components.pcollections.items():
            self._beside(f"collection {id_}", collection)
        for id_, environment in components.environments.items():
            self._beside(f"environment {id_}", environment)
            environment.resource_hints["beam:resources:canary:v1"] = self._new(
                "resource hint", f"hint of {id_}", None
            )
        self._beside("pipeline", pipeline)
        self._prove()

    def fired(self) -> dict[str, dict[int, str]]:
        """Return the canaries that were unpickled, with the command lines of the processes."""
        return {name: lines for name, each in self.all.items() if (lines := each.command_lines())}

    def fired_outside_harnesses(self) -> dict[str, list[str]]:
        """Return the command lines of other processes, by the canaries that they unpickled."""
        return {
            name: strangers
            for name, lines in self.fired().items()
            if (strangers := [line for line in lines.values() if HARNESS not in line])
        }

    def urns_fired(self) -> set[str]:
        return {self.all[name].urn for name in self.fired()}

    def _prove(self) -> None:
        """Unpickle each canary here, so that none is silent for another reason than its place."""
        for name, each in self.all.items():
            each.load()
            assert list(each.command_lines()) == [os.getpid()], f"{name} does not sing"
            (each.folder / str(os.getpid())).unlink()

    def _new(self, urn: str, name: str, kept: Any, *, is_coder: bool = False) -> bytes:
        folder = self._folder / str(len(self.all))
        folder.mkdir(parents=True)
        pickled = pickler.dumps(_Canary(folder, kept), use_zlib=is_coder)
        assert name not in self.all
        self.all[name] = Canary(urn, folder, lambda: pickler.loads(pickled, use_zlib=is_coder))
        return bytes(pickled)

    def _in_spec(self, name: str, spec: pb.FunctionSpec) -> None:
        if spec.urn not in PICKLED:
            return
        if spec.urn == python_urns.PICKLED_CODER:
            given = BytesValue.FromString(spec.payload).value.partition(b"$")[2]
            kept = pickler.loads(given, use_zlib=True)
            coded = self._new(spec.urn, name, kept, is_coder=True)
            spec.payload = BytesValue(value=b"canary$" + coded).SerializeToString()
        elif spec.urn in (python_urns.PICKLED_COMBINE_FN, python_urns.PICKLED_WINDOWFN):
            kept = pickler.loads(BytesValue.FromString(spec.payload).value)
            coded = self._new(spec.urn, name, kept)
            spec.payload = BytesValue(value=coded).SerializeToString()
        else:
            spec.payload = self._new(spec.urn, name, pickler.loads(spec.payload))

    def _in_transform(self, name: str, spec: pb.FunctionSpec) -> None:
        parsed: Message | None = None
        if spec.urn in PAR_DO_URNS:
            parsed = par_do = pb.ParDoPayload.FromString(spec.payload)
            self._in_spec(f"{name}: DoFn", par_do.do_fn)
            for tag, side in par_do.side_inputs.items():
                self._in_spec(f"{name}: view of {tag}", side.view_fn)
                self._in_spec(f"{name}: mapping of {tag}", side.window_mapping_fn)
        elif spec.urn in COMBINE_URNS:
            parsed = combine = pb.CombinePayload.FromString(spec.payload)
            self._in_spec(f"{name}: CombineFn", combine.combine_fn)
        elif spec.urn == urns.ASSIGN_WINDOWS:
            parsed = strategy = pb.WindowingStrategy.FromString(spec.payload)
            self._in_spec(f"{name}: WindowFn", strategy.window_fn)
        else:
            self._in_spec(name, spec)
        if parsed is not None:
            spec.payload = parsed.SerializeToString(deterministic=True)

    def _beside(self, name: str, described: Any) -> None:
        described.display_data.add(
            urn="beam:display_data:labelled:v1",
            payload=self._new("display data", f"display data of {name}", None),
        )


class Text(Coder):  # type: ignore[misc]
    """A coder of the user's; ``mark`` tells its uses apart."""

    def __init__(self, mark: str) -> None:
        self._mark = mark

    def encode(self, value: str) -> bytes:
        return str(value).encode()

    def decode(self, encoded: bytes) -> str:
        return encoded.decode()

    def is_deterministic(self) -> bool:
        return True


class Key(str):
    """Encoded by a pickled coder."""


class Value(str):
    """Encoded by a pickled coder."""


class _Keys(Text):
    def __init__(self) -> None:
        super().__init__("key")


class _Values(Text):
    def __init__(self) -> None:
        super().__init__("value")


beam.coders.registry.register_coder(Key, _Keys)
beam.coders.registry.register_coder(Value, _Values)


class Visits(WindowFn):  # type: ignore[misc]
    """Merges all windows of a key that overlap."""

    def assign(self, context: WindowFn.AssignContext) -> Iterable[IntervalWindow]:
        return [IntervalWindow(context.timestamp, context.timestamp + 5)]

    def merge(self, merge_context: WindowFn.MergeContext) -> None:
        windows = sorted(merge_context.windows)
        if len(windows) > 1:
            merge_context.merge(windows, IntervalWindow(windows[0].start, windows[-1].end))

    def get_window_coder(self) -> IntervalWindowCoder:
        return IntervalWindowCoder()


class _Joins(beam.CombineFn):  # type: ignore[misc]
    def create_accumulator(self) -> str:
        return ""

    def add_input(self, accumulator: str, element: str) -> str:
        return accumulator + element

    def merge_accumulators(self, accumulators: Iterable[str]) -> str:
        return "".join(accumulators)

    def extract_output(self, accumulator: str) -> str:
        return accumulator

    def get_accumulator_coder(self) -> Coder:
        return Text("accumulator")


class _Remembers(beam.DoFn):  # type: ignore[misc]
    SEEN = BagStateSpec("seen", Text("bag"))
    LAST = ReadModifyWriteStateSpec("last", Text("value"))
    ALL = CombiningValueStateSpec("all", Text("combining"), _Joins())
    DUE = TimerSpec("due", TimeDomain.WATERMARK)

    def process(
        self,
        pair: Any,
        seen: Any = beam.DoFn.StateParam(SEEN),
        last: Any = beam.DoFn.StateParam(LAST),
        together: Any = beam.DoFn.StateParam(ALL),
        due: Any = beam.DoFn.TimerParam(DUE),
    ) -> Iterator[Any]:
        seen.add(pair[1])
        last.write(pair[1])
        together.add(pair[1])
        due.set(20)
        yield pair

    @on_timer(DUE)  # type: ignore[untyped-decorator]
    def wake(self, seen: Any = beam.DoFn.StateParam(SEEN)) -> None:
        assert [*seen.read()]


class _Ranges(Coder):  # type: ignore[misc]
    def encode(self, value: OffsetRange) -> bytes:
        return f"{value.start},{value.stop}".encode()

    def decode(self, encoded: bytes) -> OffsetRange:
        return OffsetRange(*map(int, encoded.decode().split(",")))


class _Restrictions(Counting):
    def restriction_coder(self) -> Coder:
        return _Ranges()


_RESTRICTION = beam.DoFn.RestrictionParam(_Restrictions())


class _Splits(beam.DoFn):  # type: ignore[misc]
    def process(self, element: Any, tracker: Any = _RESTRICTION) -> Iterator[Any]:
        position = tracker.current_restriction().start
        while tracker.try_claim(position):
            yield position
            position += 1


def _pairs(p: beam.Pipeline) -> Any:
    return (
        p
        | beam.Create([1, 2, 11])
        | beam.Map(lambda n: TimestampedValue((Key("k"), Value(n)), n)).with_output_types(
            tuple[Key, Value]
        )
    )


def windows(p: beam.Pipeline) -> None:
    """Groups in windows of users, merging or not, with a trigger, and as a side input."""
    pairs = _pairs(p)
    trigger = {
        "trigger": AfterWatermark(early=AfterCount(2)),
        "accumulation_mode": AccumulationMode.ACCUMULATING,
    }
    for label, window_fn, more in (
        ("visits", Visits(), {}),
        ("lanes", Lanes(), {}),
        ("panes of visits", Visits(), trigger),
        ("panes of lanes", Lanes(), trigger),
    ):
        grouped = pairs | f"into {label}" >> beam.WindowInto(window_fn, **more)
        grouped | f"group {label}" >> beam.GroupByKey() | f"count {label}" >> beam.Map(len)
        grouped | f"join {label}" >> beam.CombinePerKey(_Joins())
    lanes = pairs | "to look up" >> beam.WindowInto(Lanes()) | beam.Values()
    (
        pairs
        | "lanes" >> beam.WindowInto(Lanes())
        | "look up" >> beam.Map(lambda pair, side: (pair, *side), beam.pvalue.AsIter(lanes))
    )


def everything(p: beam.Pipeline) -> None:
    """Steps with all kinds of code and coders."""
    pairs = _pairs(p)
    pairs | "group" >> beam.GroupByKey() | "count" >> beam.Map(len)
    joined = pairs | "join" >> beam.CombinePerKey(_Joins())
    pairs | "spread" >> beam.Reshuffle() | "remember" >> beam.ParDo(_Remembers())
    p | "ranges" >> beam.Create([("a", 3)]) | "split" >> beam.ParDo(_Splits())
    for label, view in (
        ("dict", beam.pvalue.AsDict(joined)),
        ("list", beam.pvalue.AsList(joined)),
        ("one", beam.pvalue.AsSingleton(joined)),
    ):
        pairs | f"as {label}" >> beam.Map(lambda pair, side: (pair, side), view)
    merged = (pairs, pairs) | beam.Flatten()
    merged | "count all" >> beam.combiners.Count.Globally().without_defaults()


def writes(folder: Path) -> Callable[[beam.Pipeline], None]:
    """Return a pipeline that writes files into a folder."""
    to_text = beam.io.WriteToText(str(folder / "text"))

    def build(p: beam.Pipeline) -> None:
        p | "words" >> beam.Create(["a", "b"]) | "to text" >> to_text
        p | "more words" >> beam.Create(["a"]) | beam.io.fileio.WriteToFiles(str(folder / "files"))

    return build


def runner_steps(p: beam.Pipeline) -> None:
    """Steps that the runner executes."""
    spread = p | beam.Impulse() | "spread" >> beam.Reshuffle()
    (spread, spread) | "flatten" >> beam.Flatten()


def add_pickled_coder(pipeline: pb.Pipeline) -> str:
    """Add a coder that is pickled; return its id."""
    coder = pipeline.components.coders["pickled"]
    coder.spec.urn = python_urns.PICKLED_CODER
    pickled = pickler.dumps(Text("added"), use_zlib=True)
    coder.spec.payload = BytesValue(value=b"text$" + pickled).SerializeToString()
    return "pickled"


NAMED, NONE, UNKNOWN, UNUSED, ODD = "named", "none", "unknown", "unused", "odd"


def give_window_fns(environment: str, pipeline: pb.Pipeline) -> None:
    """Change what all windowing strategies name as the environment of their WindowFns."""
    components = pipeline.components
    kinds: Mapping[str, str] = {
        UNUSED: urns.ENVIRONMENT_EMBEDDED_PYTHON,
        ODD: "beam:env:odd:v1",
    }
    if environment in kinds:
        components.environments[environment].urn = kinds[environment]
    if environment != NAMED:
        for strategy in components.windowing_strategies.values():
            strategy.environment_id = "" if environment == NONE else environment
