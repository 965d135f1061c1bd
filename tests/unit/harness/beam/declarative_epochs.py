"""Runs declarative steps in epochs, with their keys in a simulated state store."""

from collections import defaultdict
from pathlib import Path
from typing import Any

from beam_spark_runner.core.flight_limits import FLIGHT_LIMITS, FlightLimits
from beam_spark_runner.harness.bundle import Settled
from beam_spark_runner.harness.due import fire_due
from beam_spark_runner.recovery.heads import KeyedHead
from beam_spark_runner.semantics.interruption import Interruption
from beam_spark_runner.semantics.timers import Instant
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.policy import KeyPolicy
from beam_spark_runner.state.remote.keyed_delta import KeyedDeltas
from beam_spark_runner.state.remote.keyed_shard import KeyedShard
from beam_spark_runner.state.requests import declared_states, use_maps, value_counter
from beam_spark_runner.state.store import StoredState
from beam_spark_runner.transforms import (
    DeclarationContext,
    DeclarativeKeyedProcess,
    EventTimer,
    KeyedProcess,
    ProcessingTimer,
)
from tests.declared_programs import Runs, plain
from tests.unit.harness.beam.keyed import Running
from tests.unit.state.simulated_store import SimulatedStore
from tests.unit.state.test_keyed_shards import Files, name_of

KEY_GROUPS = 4
SECOND_US = 1_000_000


class Epochs:
    """Runs a step in epochs, with its keys in a simulated state store.

    Args:
        process: The process.
        scratch: A folder.
        limits: See ``FlightLimits``. None: keys are processed one after another.
        windows: The windows of elements.
    """

    def __init__(
        self,
        process: KeyedProcess,
        scratch: Path,
        limits: FlightLimits | None = FLIGHT_LIMITS,
        windows: Any = None,
    ) -> None:
        self._running = Running(DeclarativeKeyedProcess(process), windows)
        self._limits, self._scratch, self._windows = limits, scratch, windows
        descriptor = self._running.description.descriptor()
        use_maps(descriptor)
        self._counts = value_counter(descriptor, declared_states(descriptor))
        self.store, self._files = SimulatedStore(), Files()
        self._head = KeyedHead()
        self._epoch = 0
        self.calls = 0  # of the store, in the last epoch, until it was sealed
        self.was_interrupted = False
        self.settles = True
        self.leaves_after_us: int | None = None
        self.settled = Settled()

    def run(
        self, pairs: list[tuple[Any, Any]], watermark: int = 0, *, budget: int | None = None
    ) -> list[Any]:
        """Run an epoch; return the outputs.

        Args:
            pairs: The elements, at the time 1 s.
            watermark: The watermark after it, seconds.
            budget: After how many timers it is interrupted. None: it is not.
        """
        self._epoch += 1
        deltas = KeyedDeltas(self._files, name_of, 0, self._head)
        groups = range(KEY_GROUPS)
        with KeyedShard(self.store, groups, KEY_GROUPS, deltas, self._scratch) as shard:
            store = StoredState(
                shard.records,
                0,
                self._counts,
                lists_holds=True,
                ask=shard.records.ask,
                ask_records=shard.records.ask_records,
                batches=None if self._limits is None else shard.batches,
            )
            self._process(
                store, pairs, Instant(watermark * SECOND_US, watermark * SECOND_US), budget
            )
            self._head = shard.seal(ShardVersion(self._epoch, 0))
        outputs = self._running.out
        self._running.taken.elements.clear()
        return outputs

    def _process(
        self, store: StoredState, pairs: list[tuple[Any, Any]], to: Instant, budget: int | None
    ) -> None:
        before = self.store.calls
        interruption = None
        if budget is not None:
            spent = iter(range(1_000))
            interruption = Interruption(lambda: next(spent), budget, 1)
        limits = self._limits or FLIGHT_LIMITS
        policy = KeyPolicy(
            to,
            store,
            interruption=interruption,
            in_flight=limits,
            leaves_after_us=self.leaves_after_us,
        )
        bundle = self._running.bundle = self._running.start(policy)
        try:
            self._run_bundle(bundle, store, pairs, to, interruption)
        except BaseException:
            bundle.abort()
            raise
        self.calls = self.store.calls - before
        self.was_interrupted = interruption is not None and interruption.was_interrupted

    def _run_bundle(
        self,
        bundle: Any,
        store: StoredState,
        pairs: list[tuple[Any, Any]],
        to: Instant,
        interruption: Interruption | None,
    ) -> None:
        by_key: dict[Any, list[Any]] = defaultdict(list)
        for key, value in pairs:
            by_key[key].append(value)
        bundle.restore([record.coded for record in self.settled.left])
        for key, values in by_key.items():
            if self._windows is None:
                self._running.push(key, values, time=1)
            else:
                window = self._windows.assign(self._windows.AssignContext(1))[0]
                self._running.push(key, values, (window,), time=1)
            bundle.advance_key()

        def fire(owner: str, key: bytes) -> None:
            bundle.begin_key(key)
            bundle.advance_key()

        if interruption is not None:
            interruption.begin_again()
        fire_due(store, to, fire, interruption)
        if self.settles:
            self.settled = bundle.settle()
        bundle.finish()


class Programs(Runs):
    """Runs programs, and at 5 s and 9 s tells what two states have, which it has changed then."""

    soon = EventTimer("soon")
    later = ProcessingTimer("later")

    def declare_process(self, ctx: DeclarationContext) -> Any:
        run = super().declare_process(ctx)

        def element(pair: Any) -> None:
            self.soon.set(5)
            self.later.set(9, tag="x")
            run(pair)

        return element

    def declare_on_event_time(self, ctx: DeclarationContext) -> Any:
        def tell(_: Any) -> Any:
            both = self.sum_0.read().then_combine(self.map_1.items(), lambda a, b: (a, plain(b)))
            return both.then_accept(lambda told: ctx.output((ctx.key, "soon", told)))

        return ctx.declare_chain(lambda _: self.sum_0.add(100)).then_compose(tell).finish()

    def declare_on_processing_time(self, ctx: DeclarationContext) -> Any:
        read = ctx.declare("read", lambda _: self.map_1.get("a"))
        tell = ctx.declare("tell", lambda told: ctx.output((ctx.key, "later", told)))
        return lambda timer: (
            self.map_1.put("a", len(timer.tag)).then_compose(read).then_accept(tell)
        )


def by_place(outputs: list[Any]) -> dict[Any, list[Any]]:
    """Return the outputs of each key and chain, in their order."""
    found: dict[Any, list[Any]] = defaultdict(list)
    for key, place, told in outputs:
        found[key, place].append(told)
    return found


TINY = FlightLimits(records=5, size=2_000, of_key=2, batch=3, wait_us=10)


def entries(store: SimulatedStore) -> Any:
    """Return the names of all entries, without values: these have random stamps."""
    return {
        number: {structure: set(each) for structure, each in group.entries.items()}
        for number, group in store.groups.items()
    }
