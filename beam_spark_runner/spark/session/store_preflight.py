"""Checks that all executors reach the state store of a pipeline, before it runs."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.core.store_address import StateStoreAddress
from beam_spark_runner.spark.session.handle import SessionHandle

_SCHEMA = "host string, problem string"
_checked: set[tuple[str, StateStoreAddress]] = set()
_lock = threading.Lock()


def check_executors_reach(session: SessionHandle, address: StateStoreAddress) -> None:
    """Run one small task per slot, once for each application and store.

    Executors that join later are not checked here. Their tasks notice that a server does not know
    the namespace before they copy keys there; see ``KeyStore.check_known``.

    Args:
        session: The pipeline's session, whose executors have this package. Nothing is done if
            tasks run in the driver's JVM.
        address: The address of the store.

    Raises:
        OptionsError: An executor does not reach the store, or reaches another server.
        StateStoreError: The store does not work.
    """
    if session.is_local:
        return
    from beam_spark_runner.state.remote.redis_probe import (  # an optional library
        remove_probe,
        write_probe,
    )

    key = session.application_id(), address
    with _lock:
        if key in _checked:
            return
        slots, name = session.slots(), write_probe(address)
        try:
            frame = session.spark.range(0, slots, 1, slots)
            answers = frame.mapInArrow(_look(address, name), _SCHEMA).collect()
        finally:
            remove_probe(address, name)
        problems = sorted({f"on {host}: {problem}" for host, problem in answers if problem})
        if problems:
            raise OptionsError(
                "state_store",
                f"{address.url} is not a server that all executors share with this machine; "
                + "; ".join(problems),
            )
        _checked.add(key)


def _look(
    address: StateStoreAddress, name: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def look(batches: Any) -> Iterator[pa.RecordBatch]:
        import platform

        for _ in batches:
            pass
        try:
            from beam_spark_runner.state.remote.redis_probe import problem_of_probe

            problem = problem_of_probe(address, name)
        except ImportError as error:
            problem = f"{error}; install the extra redis of this package"
        yield pa.RecordBatch.from_pylist([{"host": platform.node(), "problem": problem}])

    return look
