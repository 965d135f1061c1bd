"""Bounded pipelines that are simulated."""

import functools
from dataclasses import dataclass
from random import Random

from beam_spark_runner.graph.model import Graph
from beam_spark_runner.graph.passes import BATCH, run_passes
from beam_spark_runner.plan.build import build
from beam_spark_runner.plan.model import Plan
from tests.golden.notation import parse

SHAPES = {
    "rounds": """
        Start: impulse() -> start
        Make: pardo(start) -> made @py
        Read: pardo(made) -> read @py restriction=range
        Group: group_by_key(read) -> grouped
        Use: pardo(grouped) -> used @py
        Again: pardo(used) -> again @py restriction=range
        End: pardo(again) -> end @py
        read :: kv<bytes,bytes>
        grouped :: kv<bytes,iterable<bytes>>
        """,
    "side inputs": """
        Start: impulse() -> start
        Make: pardo(start) -> made @py
        Move: reshuffle(made) -> moved
        Read: pardo(moved) -> read @py restriction=range
        Group: group_by_key(read) -> grouped
        Total: pardo(grouped) -> total @py
        Rate: pardo(read, total as iterable) -> rate @py
        Look: pardo(read, total as iterable, rate as iterable) -> end @py
        read :: kv<bytes,bytes>
        grouped :: kv<bytes,iterable<bytes>>
        """,
    "rounds after rounds": """
        Start: impulse() -> start
        Make: pardo(start) -> made @py
        Read: pardo(made) -> read @py restriction=range
        Again: pardo(read) -> again @py restriction=range
        Also: pardo(made) -> also @py
        Join: flatten(again, also) -> joined
        Group: group_by_key(joined) -> grouped
        End: pardo(grouped) -> end @py
        again :: kv<bytes,bytes>
        also :: kv<bytes,bytes>
        joined :: kv<bytes,bytes>
        grouped :: kv<bytes,iterable<bytes>>
        """,
    "a side input alone": """
        Start: impulse() -> start
        Make: pardo(start) -> made @py
        Move: reshuffle(made) -> moved
        Total: pardo(moved) -> total @py
        Go: impulse() -> go
        Rate: pardo(go, total as iterable) -> rate @py
        End: pardo(moved, rate as iterable) -> end @py
        """,
    "chain": """
        Start: impulse() -> start
        A: pardo(start) -> a @py
        R1: reshuffle(a) -> b
        B: pardo(b) -> c @py
        R2: reshuffle(c) -> d
        C: pardo(d) -> e @py
        R3: reshuffle(e) -> f
        D: pardo(f) -> end @py
        """,
    "two readers": """
        Start: impulse() -> start
        Make: pardo(start) -> made @py
        Left: pardo(made) -> left @py stable
        Right: pardo(made) -> right @py stable
        Both: flatten(left, right) -> both
        Group: group_by_key(both) -> grouped
        End: pardo(grouped) -> end @py
        left :: kv<bytes,bytes>
        right :: kv<bytes,bytes>
        both :: kv<bytes,bytes>
        grouped :: kv<bytes,iterable<bytes>>
        """,
    "diamond": """
        Start: impulse() -> start
        Other: impulse() -> other
        Make: pardo(start) -> made @py
        Also: pardo(other) -> also @py
        All: flatten(made, also) -> all
        Group: group_by_key(all) -> grouped
        Sum: pardo(grouped, also as iterable) -> sum @py stable
        Read: pardo(all) -> read @py restriction=range
        Join: flatten(sum, read) -> joined
        Again: group_by_key(joined) -> again
        End: pardo(again) -> end @py stable
        made :: kv<bytes,bytes>
        also :: kv<bytes,bytes>
        all :: kv<bytes,bytes>
        sum :: kv<bytes,bytes>
        read :: kv<bytes,bytes>
        joined :: kv<bytes,bytes>
        grouped :: kv<bytes,iterable<bytes>>
        again :: kv<bytes,iterable<bytes>>
        """,
}


@dataclass(frozen=True, kw_only=True)
class BoundedPipeline:
    """What the driver is given.

    Attributes:
        plan: what it runs.
        partitions: at least so many, of each exchange.
        counts_bytes: more partitions for more rows.
        has_first_tasks: segments begin in one task, if they can.
        has_rounds: splittable DoFns have a budget.
        shares_storage: rows of segments are in files, and not on hosts.
        max_attempts: at a task, if user code fails.
        is_poisoned: user code fails on some element in each attempt.
    """

    plan: Plan
    partitions: int = 2
    counts_bytes: bool = False
    has_first_tasks: bool = False
    has_rounds: bool = True
    shares_storage: bool = False
    max_attempts: int = 2
    is_poisoned: bool = False


@functools.cache
def plan_of(shape: str, max_exchanges: int = 12) -> Plan:
    """Return the plan of one of ``SHAPES``."""
    return planned(parse(SHAPES[shape]), max_exchanges)


def planned(graph: Graph, max_exchanges: int) -> Plan:
    """Return the plan of a graph; see ``plan.build``."""
    return build(run_passes(graph, BATCH), max_exchanges=max_exchanges)


def planned_in_levels(graph: Graph) -> Plan:
    """Return the plan of a graph that a later start of the driver can continue."""
    return build(run_passes(graph, BATCH), separates_levels=True)


def drawn(seed: int, plan: Plan | None = None) -> BoundedPipeline:
    """Draw a pipeline, or how a plan is run."""
    random = Random(seed)
    shape, most = random.choice(list(SHAPES)), random.choice((1, 2, 12))
    return BoundedPipeline(
        plan=plan or plan_of(shape, most),
        partitions=random.choice((1, 2, 2, 3)),
        counts_bytes=random.random() < 0.5,
        has_first_tasks=random.random() < 0.6,
        has_rounds=random.random() < 0.8,
        shares_storage=random.random() < 0.5,
        max_attempts=random.randrange(1, 4),
        is_poisoned=random.random() < 0.1,
    )
