"""Random chains of steps whose user functions do what Beam forbids, and its harness forgives.

They change elements, keep references to them and change them later, yield an object twice or a
part of what they got. Results must not depend on more than the order in which Beam's own
operations process elements, so each collection knows what it consists of: constants and other
values overtake each other, and where there are both, no step is added that depends on the order.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.transforms.window import (
    FixedWindows,
    SlidingWindows,
    TimestampedValue,
    WindowFn,
)

from tests.unit.harness.beam.chain_functions import (
    AtTime,
    Batching,
    ByBeam,
    ByContent,
    InEachWindow,
    Keeping,
    KeepingWindows,
    Late,
    OpenAtTime,
    OpenByBeam,
    WithOrigin,
    before_and_after,
    by_tag,
    changed,
    growing,
    in_list,
    in_pair,
    keeping_results,
    keeping_values,
    listed,
    many,
    opened,
    opened_inside,
    part_of,
    parts,
    passed_on,
    reusing,
    seen_open,
    some_stamped,
    tagged,
    twice,
    with_defaults,
)

CONSTANTS = "constants"
LISTS = "lists"
CHANGEABLE = "changeable"  # no constants: lists, dicts, and tuples with such parts
MIXED = "mixed"


class Step(NamedTuple):
    """A step that may be added to a chain.

    Attributes:
        apply: Adds it to a collection, by a label, and returns its outputs.
        gives: What the outputs consist of, by what the input does.
        takes: What the input may consist of.
        needs_order: Whether results depend on the order of elements.
        factor: How many results there are for each element.
        stamps: Whether results get timestamps, so that the window fn of the input is called.
    """

    apply: Callable[[Any, str], Sequence[Any]]
    gives: Callable[[str], Sequence[str]]
    takes: Sequence[str] = (CONSTANTS, LISTS, CHANGEABLE, MIXED)
    needs_order: bool = False
    factor: int = 1
    stamps: bool = False


def _same(of: str) -> Sequence[str]:
    return (of,)


def _always(*kinds: str) -> Callable[[str], Sequence[str]]:
    return lambda of: kinds


def _wrapped(of: str) -> Sequence[str]:
    return (CHANGEABLE if of == LISTS else of,)


def _mapped(make: Callable[[], Any]) -> Callable[[Any, str], Sequence[Any]]:
    return lambda collection, label: (collection | label >> beam.Map(make()),)


def _filtered(make: Callable[[], Any]) -> Callable[[Any, str], Sequence[Any]]:
    return lambda collection, label: (collection | label >> beam.Filter(make()),)


def _flat(make: Callable[[], Any]) -> Callable[[Any, str], Sequence[Any]]:
    return lambda collection, label: (collection | label >> beam.FlatMap(make()),)


def _done(make: Callable[[], beam.DoFn]) -> Callable[[Any, str], Sequence[Any]]:
    return lambda collection, label: (collection | label >> beam.ParDo(make()),)


def _windowed(make: Callable[[], WindowFn]) -> Callable[[Any, str], Sequence[Any]]:
    return lambda collection, label: (collection | label >> beam.WindowInto(make()),)


def _tagged(collection: Any, label: str) -> Sequence[Any]:
    outputs = collection | label >> beam.FlatMap(tagged).with_outputs("wrapped", "text", main="all")
    return outputs.all, outputs.wrapped, outputs.text


def _tupled(make: Callable[[], Any]) -> Callable[[Any, str], Sequence[Any]]:
    """Of MapTuple with a further argument, which a parameter with a default takes."""
    return lambda collection, label: (
        collection
        | f"{label}, pairs" >> beam.Map(in_pair)
        | label >> beam.MapTuple(make(), "given"),
    )


def _partitioned(collection: Any, label: str) -> Sequence[Any]:
    return tuple(collection | label >> beam.Partition(part_of, 3))


def _partly_declared(collection: Any, label: str) -> Sequence[Any]:
    """Some of its tags have no output."""
    outputs = collection | label >> beam.FlatMap(by_tag).with_outputs("even", main="all")
    return outputs.all, outputs.even


STEPS: dict[str, Step] = {
    # Closed functions.
    "same": Step(_mapped(lambda: lambda v: v), _same),
    "list": Step(_mapped(lambda: lambda v: [v]), _always(LISTS)),
    "dict": Step(_mapped(lambda: lambda v: {"v": v, "w": [v]}), _always(CHANGEABLE)),
    "pair": Step(_mapped(lambda: lambda v: (v, 1)), _wrapped),
    "text": Step(_mapped(lambda: lambda v: repr(v)), _always(CONSTANTS)),
    "append": Step(_mapped(lambda: lambda v: v.append(1) or v), _same, (LISTS,)),
    "filter": Step(_filtered(lambda: lambda v: len(repr(v)) % 3), _same),
    "append in filter": Step(_filtered(lambda: lambda v: v.append(0) or True), _same, (LISTS,)),
    "stamp": Step(
        _mapped(lambda: lambda v: TimestampedValue([v], len(repr(v)) % 30)),
        _always(LISTS),
        stamps=True,
    ),
    # Functions that are not closed.
    "changed": Step(_mapped(lambda: changed), _same),
    "passed on": Step(_mapped(lambda: passed_on), _same),
    "in list": Step(_mapped(lambda: in_list), _always(LISTS)),
    "in pair": Step(_mapped(lambda: in_pair), _wrapped),
    "defaults": Step(_mapped(lambda: with_defaults), _always(LISTS)),
    "defaults of FlatMap": Step(_flat(lambda: with_defaults), _always(MIXED), factor=2),
    "first default given": Step(
        lambda collection, label: (collection | label >> beam.Map(with_defaults, "given"),),
        _always(LISTS),
    ),
    "second default given": Step(
        lambda collection, label: (collection | label >> beam.Map(with_defaults, second=[1]),),
        _always(LISTS),
    ),
    "reused": Step(_mapped(reusing), _always(LISTS)),
    "keeping results": Step(_mapped(keeping_results), _always(LISTS), needs_order=True),
    "keeping filter": Step(_filtered(keeping_values), _same, needs_order=True),
    "some stamped": Step(_mapped(lambda: some_stamped), _same, stamps=True),
    "twice": Step(_flat(lambda: twice), _same, factor=2),
    "before and after": Step(_flat(lambda: before_and_after), _same, factor=2),
    "growing": Step(_flat(lambda: growing), _always(LISTS), factor=12),
    "many": Step(_flat(lambda: many), _always(CONSTANTS), factor=20),
    "listed": Step(_flat(lambda: listed), _always(MIXED), factor=3),
    "parts": Step(_flat(lambda: parts), _always(MIXED), factor=4),
    "tagged": Step(_tagged, lambda of: (of, LISTS, MIXED), factor=2, stamps=True),
    "partitioned": Step(_partitioned, lambda of: (of, of, of)),
    "partly declared": Step(_partly_declared, lambda of: (of, of), factor=2),
    "keeping": Step(_done(Keeping), _same, needs_order=True),
    "late": Step(_done(Late), _same, needs_order=True),
    "batching": Step(_done(Batching), _always(LISTS), needs_order=True),
    "by Beam": Step(_done(ByBeam), _wrapped),
    "at time": Step(_done(AtTime), _wrapped),
    "with origin": Step(
        lambda collection, label: (
            collection | label >> beam.ParDo(WithOrigin(), "first", "given"),
        ),
        _wrapped,
    ),
    "with time": Step(
        _mapped(lambda: lambda v, at=beam.DoFn.TimestampParam, end=1: (v, at.micros)), _wrapped
    ),
    "with window": Step(
        _flat(lambda: lambda v, window=beam.DoFn.WindowParam: [(v, str(window))]),
        _wrapped,
        factor=2,
    ),
    "tuple": Step(_tupled(lambda: lambda v, n, given=0, end=1: [v, n, given, end]), _wrapped),
    "tuple with time": Step(
        _tupled(lambda: lambda v, n, given=0, at=beam.DoFn.TimestampParam: [v, given, at.micros]),
        _wrapped,
    ),
    "in each window": Step(_done(InEachWindow), _wrapped, factor=2),
    # Windows.
    "fixed": Step(_windowed(lambda: FixedWindows(10)), _same),
    "sliding": Step(_windowed(lambda: SlidingWindows(10, 5)), _same),
    "by content": Step(_windowed(ByContent), _same),
    "keeping windows": Step(_windowed(KeepingWindows), _same, needs_order=True),
}
WITH_RESOURCES: dict[str, Step] = {
    "opened": Step(_flat(lambda: opened), _always(CONSTANTS)),
    "opened inside": Step(_flat(lambda: opened_inside), _always(CONSTANTS)),
    "opened at time": Step(_done(OpenAtTime), _always(CONSTANTS)),
    "opened by Beam": Step(_done(OpenByBeam), _always(CONSTANTS)),
    "seen open": Step(_mapped(lambda: seen_open), _wrapped),
}
