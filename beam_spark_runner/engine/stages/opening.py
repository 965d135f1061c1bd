"""Decides of which parts a stage of a task consists, and opens it."""

from collections.abc import Callable
from dataclasses import replace

from beam_spark_runner.core.flight_limits import FLIGHT_LIMITS
from beam_spark_runner.core.time import MIN_US
from beam_spark_runner.engine.rows.coder_errors import Reader, StageEpoch
from beam_spark_runner.engine.rows.group_reader import GroupReader
from beam_spark_runner.engine.rows.keyed_reader import KeyedReader
from beam_spark_runner.engine.rows.readers import ElementRowReader, RestrictionReader, reader_for
from beam_spark_runner.engine.rows.view_rows import pane_coder
from beam_spark_runner.engine.stages.accumulator_merger import AccumulatorMerger
from beam_spark_runner.engine.stages.batch_rounds import Rounds
from beam_spark_runner.engine.stages.context import StageContext
from beam_spark_runner.engine.stages.gates.await_commit import AwaitCommit
from beam_spark_runner.engine.stages.gates.await_view import AwaitView
from beam_spark_runner.engine.stages.gates.due_keys import DueGroups, DueKeys
from beam_spark_runner.engine.stages.gates.gate import Gate
from beam_spark_runner.engine.stages.gates.records_in_flight import RecordsInFlight
from beam_spark_runner.engine.stages.gates.restrictions import Restrictions
from beam_spark_runner.engine.stages.gates.sort_by_time import SortByTime
from beam_spark_runner.engine.stages.operator import OneBundle
from beam_spark_runner.engine.stages.siblings import StagesOfEpoch, StagesOfTask
from beam_spark_runner.engine.stages.stage import Stage
from beam_spark_runner.engine.stages.table_rows_writer import TableRowsWriter
from beam_spark_runner.engine.stages.view_writer import ViewWriter
from beam_spark_runner.harness.bundle import BundleInput, SteppedInput
from beam_spark_runner.plan.model import Stored
from beam_spark_runner.semantics.interruption import Interruption
from beam_spark_runner.state.policy import KeyPolicy


def open_stage(context: StageContext[StagesOfTask], now_us: Callable[[], int]) -> Stage:
    """Open a stage that stores nothing in the shard.

    Args:
        context: what its parts have in common.
        now_us: returns processing time, microseconds since the epoch.
    """
    if context.program.description.is_splittable:
        rounds = Rounds(context, now_us)
        restrictions = RestrictionReader(context.program.input, context.input_coder, rounds.input)
        return Stage(context, rounds, restrictions, rounds=rounds)
    operator = OneBundle(context)
    reader = _reader(context, operator, operator.input)
    return Stage(context, operator, reader, push_from_within=operator.bundle.push_from_within)


def open_storing_stage(context: StageContext[StagesOfEpoch]) -> Stage:
    """Open a stage that stores data: see ``StageInEpochs``."""
    if context.program.in_epochs.is_for_table:
        return _with_table(context)
    stores = context.program.in_epochs.stores
    if Stored.RESTRICTIONS in stores:
        return _with_restrictions(context)
    if Stored.VIEW in stores:
        return _with_view(context)
    if Stored.UNSORTED in stores:
        return _with_sorted_input(context)
    if Stored.UNCOMMITTED in stores:
        return _with_stable_input(context)
    if stores & {Stored.KEYS, Stored.GROUPS}:
        return _with_keys(context)
    operator = OneBundle(context)
    gate = AwaitView(context, operator)
    reader = _reader(context, operator, gate)
    return Stage(context, operator, reader, push_from_within=gate.push_from_within, gates=[gate])


def _with_restrictions(context: StageContext[StagesOfEpoch]) -> Stage:
    gate = Restrictions(context)
    reader = ElementRowReader(context.program.input, context.input_coder, gate.operator.input)
    return Stage(context, gate.operator, reader, gates=[gate], is_stable=_is_stable(context))


def _with_table(context: StageContext[StagesOfEpoch]) -> Stage:
    operator = TableRowsWriter(context)
    reader = ElementRowReader(context.program.input, context.input_coder, operator.input)
    return Stage(context, operator, reader, push_from_within=operator.input.push)


def _with_view(context: StageContext[StagesOfEpoch]) -> Stage:
    operator = ViewWriter(context)
    epoch = context.task.epoch_of(context.program)
    reader = GroupReader(
        context.program.input,
        pane_coder(context.input_coder),
        operator.input,
        context.task.logs,
        epoch,
    )
    return Stage(context, operator, reader, gates=[DueGroups(epoch, operator, reader)])


def _with_sorted_input(context: StageContext[StagesOfEpoch]) -> Stage:
    epoch = context.task.epoch_of(context.program)
    policy = _key_policy(context, epoch, MIN_US)
    operator = OneBundle(context, policy, has_keys=_has_state(context))
    gate = SortByTime(context, epoch, operator)
    return Stage(
        context,
        operator,
        _reader(context, operator, gate.elements, epoch),
        push_from_within=gate.elements.push,
        gates=[gate],
        is_stable=_is_stable(context),
    )


def _with_stable_input(context: StageContext[StagesOfEpoch]) -> Stage:
    program = context.program
    gates: list[Gate] = []
    if Stored.KEYS in program.in_epochs.stores:
        # Timers are not interrupted: an epoch that runs again fires the same ones.
        epoch = context.task.epoch_of(program)
        policy = _key_policy(context, epoch, MIN_US)
        operator = OneBundle(context, policy, has_keys=_has_state(context))
        if operator.keys is not None:
            gates.append(DueKeys(epoch, operator, _advancing(operator.keys)))
    else:
        operator = OneBundle(context)
    gate = AwaitCommit(context, operator)
    return Stage(
        context,
        operator,
        _reader(context, operator, gate.elements),
        push_from_within=gate.elements.push,
        gates=[gate, *gates],
        is_stable=True,
    )


def _with_keys(context: StageContext[StagesOfEpoch]) -> Stage:
    """Open a step with state or timers, or a grouping."""
    program, task = context.program, context.task
    part = program.in_epochs
    has_keys = Stored.KEYS in part.stores
    batch = context.level.epoch and context.level.epoch.user_timer_batch
    interruption = None
    if batch is not None or not has_keys:
        interruption = Interruption(task.spent_us, task.epoch.due_us, batch or 1)
    epoch = task.epoch_of(program)._replace(interruption=interruption)
    watermark_us = MIN_US if context.gets_panes else epoch.before.watermark_us
    policy = _key_policy(context, epoch, watermark_us)
    policy = replace(policy, leaves_after_us=_leaves_after_us(context))
    operator = OneBundle(context, policy, has_keys=has_keys)
    merger = None
    if part.merger is not None:
        merger = AccumulatorMerger(context.job, part.merger)
        epoch = epoch._replace(merge=operator.interrupted_by(merger.merge))
    gates: list[Gate] = []
    entrance: BundleInput = operator.input
    push_from_within = operator.bundle.push_from_within
    if Stored.UNREADY in part.stores:
        entrance = gate = AwaitView(context, operator)
        push_from_within = gate.push_from_within
        gates.append(gate)
    reader = _reader(context, operator, entrance, epoch)
    if isinstance(reader, GroupReader):
        gates.append(DueGroups(epoch, operator, reader, merger))
    else:
        assert isinstance(reader, KeyedReader)
        gates.append(DueKeys(epoch, operator, reader.fire))
        if operator.keys is not None:
            gates.append(RecordsInFlight(context, operator))
    return Stage(context, operator, reader, push_from_within=push_from_within, gates=gates)


def _reader(
    context: StageContext[StagesOfTask],
    operator: OneBundle,
    entrance: BundleInput,
    epoch: StageEpoch | None = None,
) -> Reader:
    return reader_for(
        context.program.input,
        context.input_coder,
        entrance,
        context.task.logs,
        epoch,
        operator.window_merger(),
    )


def _has_state(context: StageContext[StagesOfEpoch]) -> bool:
    """Whether the step has state or timers."""
    description = context.program.description
    return description.has_states or description.has_timers


def _advancing(keys: SteppedInput) -> Callable[[str, bytes], None]:
    def fire(owner: str, key: bytes) -> None:
        keys.begin_key(key)
        keys.advance_key()

    return fire


def _is_stable(context: StageContext[StagesOfEpoch]) -> bool:
    return Stored.UNCOMMITTED in context.program.in_epochs.stores


def _leaves_after_us(context: StageContext[StagesOfEpoch]) -> int | None:
    """Return how long records in flight are finished before the rest is left; None: all are."""
    part, epoch = context.level.epoch, context.task.epoch
    return epoch.due_us if part is not None and part.leaves_requests and not epoch.drains else None


def _key_policy(
    context: StageContext[StagesOfEpoch], epoch: StageEpoch, watermark_us: int
) -> KeyPolicy:
    """Return the policy of a bundle whose keys are stored.

    Args:
        context: the stage.
        epoch: its store and times.
        watermark_us: the watermark by which elements are late; the least if none is: those that
            were stored in time are not.
    """
    part = context.level.epoch
    return KeyPolicy(
        epoch.now,
        epoch.store,
        watermark_us,
        in_flight=FLIGHT_LIMITS if part is None else part.in_flight,
        clock_us=epoch.before.clock_us if context.task.epoch.clock_stands else None,
        interruption=epoch.interruption,
        late=epoch.late,
        dropped=context.task.dropped_of(context.program),
    )
