"""How long an epoch takes to end that has very many records in flight."""

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

from beam_spark_runner.core.flight_limits import FLIGHT_LIMITS
from beam_spark_runner.core.store_address import StateStoreAddress
from beam_spark_runner.state.remote.key_stores import key_store
from beam_spark_runner.state.remote.redis_namespaces import RedisNamespaces
from benchmarks.state_store.delaying_proxy import delaying_proxy
from tests.declared import Lookups
from tests.unit.harness.beam.declarative_epochs import KEY_GROUPS, Epochs

_RECORDS = 6_500  # no multiple of a batch, so that some requests wait at the end
_ENTRIES = 60  # at least; fewer would fit into the pack of their key
_RUNS = 3
_ROUND_TRIP_S = 0.001


class _Timed(Epochs):
    """Epochs of a step with three lookups in a row, in a Redis server."""

    def __init__(self, folder: Path, port: int, keys: int) -> None:
        super().__init__(Lookups(), folder, FLIGHT_LIMITS._replace(records=2 * _RECORDS))
        address = StateStoreAddress(f"redis://127.0.0.1:{port}")
        if not RedisNamespaces(address, str(folder), "", KEY_GROUPS).claim(folder.name):
            raise SystemExit("the namespace is that of another run")
        store: Any = key_store(address, folder.name, 1)
        store.calls = 0  # they are not counted here
        self.store, self._keys, self._began = store, keys, 0.0
        self._entries = max(_ENTRIES, _RECORDS // keys)  # so that each record reads other ones
        self.run([(key, -self._entries) for key in range(keys)])

    def ends_after_s(self, leaves_after_us: int | None) -> float:
        """Return the seconds from the end of an epoch's input until it is sealed."""
        self.leaves_after_us = leaves_after_us
        keys, entries = self._keys, self._entries
        self.run(
            [(number % keys, entries - 1 - number // keys % entries) for number in range(_RECORDS)]
        )
        took_s = time.monotonic() - self._began
        self.leaves_after_us = None
        if bool(self.settled.left) is (leaves_after_us is None):
            raise SystemExit(f"{len(self.settled.left)} records are left")
        self.run([])
        return took_s

    def _run_bundle(self, bundle: Any, *rest: Any) -> None:
        settle = bundle.settle

        def timed() -> Any:
            self._began = time.monotonic()
            return settle()

        bundle.settle = timed
        super()._run_bundle(bundle, *rest)


def left(port: int, folder: Path, arguments: argparse.Namespace) -> None:
    """Print how long the ends of epochs take, with everything finished and with the rest left."""
    for keys in (_RECORDS, 65, 5):
        with delaying_proxy(port, _ROUND_TRIP_S) as proxied:
            epochs = _Timed(folder / f"left-{keys}", proxied, keys)
            kinds: dict[str, int | None] = {"finished": None, "left": 0}
            times: dict[str, list[float]] = {kind: [] for kind in kinds}
            for _ in range(_RUNS):
                for kind, after_us in kinds.items():
                    times[kind].append(epochs.ends_after_s(after_us))
        found = {kind: statistics.median(each) for kind, each in times.items()}
        print(
            f"{_RECORDS:,} records of {keys:,} keys at 1 ms: finished in "
            f"{1e3 * found['finished']:,.0f} ms, left in {1e3 * found['left']:,.0f} ms "
            f"({found['finished'] / found['left']:.1f} times)"
        )
