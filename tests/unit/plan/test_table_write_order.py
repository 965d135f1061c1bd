"""Tables in plans: where they are read, and when they are written."""

from dataclasses import replace

from beam_spark_runner.core.table_steps import READ_TABLE, WRITE_TABLE, TableRead, TableWrite
from beam_spark_runner.graph import passes
from beam_spark_runner.plan.build import build
from beam_spark_runner.plan.explain import explain
from beam_spark_runner.plan.model import Plan
from beam_spark_runner.plan.picture import picture
from tests.golden.notation import parse


def plan_of(text: str, *, is_streaming: bool = False) -> Plan:
    graph = parse(text)
    payloads = {
        READ_TABLE: TableRead(table="sales", columns=("item",), where="price > 1").to_payload(),
        WRITE_TABLE: TableWrite(path="/out", format="parquet").to_payload(),
    }
    transforms = {
        id_: replace(step, payload=payloads.get(step.urn, step.payload))
        for id_, step in graph.transforms.items()
    }
    order = passes.STREAMING if is_streaming else passes.BATCH
    graph = passes.run_passes(replace(graph, transforms=transforms), order)
    return build(graph, is_streaming=is_streaming)


def order(plan: Plan) -> list[str]:
    """Name what each segment runs: its steps, or the write."""
    return [
        str(segment.table_write)
        if segment.table_write is not None
        else " ".join(
            step
            for level in segment.levels
            for stage in level.stages
            for step in plan.stages[stage].transforms
        )
        for segment in plan.segments
    ]


def test_a_table_is_a_source_like_an_impulse() -> None:
    plan = plan_of(
        """
        Start: impulse() -> start
        Sales: read_table() -> sales
        Make: pardo(start) -> made @py
        Decode: pardo(sales) -> rows @py
        """
    )
    (segment,) = plan.segments
    assert list(segment.tables.values()) == ["Sales"]
    assert len(segment.impulses) == 1
    assert not segment.levels[0].has_exchange


def test_what_does_not_follow_a_write_runs_before_it() -> None:
    plan = plan_of(
        """
        Sales: read_table() -> sales
        Decode: pardo(sales) -> rows @py
        Write: write_table(rows) -> written
        After: pardo(written) -> after @py
        Look: pardo(rows, rows as iterable) -> looked @py
        Other: pardo(rows, looked as iterable) -> other @py
        """
    )
    assert order(plan) == ["Decode", "Look", "Other", "Write", "After"]
    write = plan.segments[3]
    assert write.levels == ()
    assert list(write.reads.values()) == [(0,)]
    assert list(plan.segments[4].results.values()) == ["Write"]


def test_writes_after_writes() -> None:
    plan = plan_of(
        """
        Sales: read_table() -> sales
        Decode: pardo(sales) -> rows @py
        First: write_table(rows) -> first
        Use: pardo(rows, first as iterable) -> used @py
        Second: write_table(used) -> second
        Third: write_table(rows) -> third
        End: pardo(second) -> end @py
        """
    )
    found = order(plan)
    assert found.index("First") < found.index("Use") < found.index("Second") < found.index("End")
    assert found.index("Third") < found.index("Use")
    (use,) = (each for each in plan.segments if order(plan)[each.id] == "Use")
    (why,) = {
        why for each in plan.segments[:1] for dest, why in each.writes.items() if dest in use.reads
    }
    assert why.endswith("what follows the write of a table runs after all else")


def test_rows_of_several_segments_are_written_together() -> None:
    plan = plan_of(
        """
        Start: impulse() -> start
        A: pardo(start) -> a @py
        B: pardo(start, a as iterable) -> b @py
        Both: flatten(a, b) -> both
        Write: write_table(both) -> written
        """
    )
    (write,) = (each for each in plan.segments if each.table_write)
    assert write.id == len(plan.segments) - 1
    (writers,) = write.reads.values()
    assert len(writers) == 2


def test_plans_name_tables() -> None:
    plan = plan_of(
        """
        Sales: read_table() -> sales
        Decode: pardo(sales) -> rows @py
        Write: write_table(rows) -> written
        After: pardo(written) -> after @py
        """
    )
    text = explain(plan)
    assert (
        "reads    the table sales (columns item; where price > 1), directly from the source" in text
    )
    assert "writes   to the table of Write" in text
    assert (
        "Segment 1: one Spark write of parquet in /out (Write), from the rows of segment 0" in text
    )
    assert "reads    what output of Write has written" in text or "what Write has written" in text
    assert "one Spark write of parquet in /out" in picture(plan)


def test_in_a_stream_the_tasks_of_the_step_before_store_the_rows() -> None:
    plan = plan_of(
        """
        Events: test_stream() -> events
        Encode: pardo(events) -> coded @py
        Write: write_table(coded) -> written
        Result: pardo(written) -> result @py
        """,
        is_streaming=True,
    )
    (segment,) = plan.segments
    (level,) = segment.levels
    assert segment.table_write is None
    (stage,) = (each for each in plan.stages.values() if each.table_write == "Write")
    assert stage.id in level.stages
    assert stage.outputs == ()
    assert [plan.destinations[dest].stage for dest in plan.consumers[stage.input]] == [stage.id]
    text = "keeps    the rows of an epoch, until the driver writes parquet in /out"
    assert text in explain(plan)
    assert picture(plan)
