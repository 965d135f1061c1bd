"""Keys in a state store: ``python -m benchmarks.state_store rates``, or other cases of these.

A Redis server runs on this machine, and a proxy delays what goes to it and comes from it. Machines
are shared and noisy: ratios of one run are meaningful, other figures only on a quiet machine.

rates: a step with a value and a timer of each key, which a pipeline in this process changes round
after round: with keys in the store without delay, at 1 ms and at 10 ms, read ahead or one at a
time, or kept in memory from the previous round, and with keys on the local disk.

keys: CPU times of the same changes without pipelines, of the client and of the server.

hosts: the time to open the keys of a task on another host, and to read the first ones.

memory: the server's memory for each key beyond the bytes of its records.

epochs: epochs of three levels, of which two group, that have next to nothing to do, in turns with
keys in the store and on the local disk.

starts: the time from the command to the first commit, of a pipeline that has keys already, with as
many partitions as before and with twice as many.

workers: the memory of a worker with a number of keys, and with ten times as many.

left: the end of an epoch with 6,500 records, each with three lookups in a row, at 1 ms:
until all are finished, and with --unaligned_state_requests.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.state_store import in_flight, partition, restarts, rounds
from tests.harness.processes import lasting_port
from tests.state_store.servers import redis_server

_CASES: dict[str, Callable[[int, Path, argparse.Namespace], None]] = {
    "rates": rounds.rates,
    "keys": partition.keys,
    "hosts": partition.hosts,
    "memory": partition.memory,
    "epochs": rounds.epochs,
    "starts": restarts.starts,
    "workers": restarts.workers,
    "left": in_flight.left,
}


def main() -> None:
    """Run the cases of the command line, and print their figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.state_store", description=__doc__)
    parser.add_argument("cases", nargs="*", choices=[*_CASES, []], help="all, if none is named")
    parser.add_argument("--keys", type=int, default=100_000, help="that each round changes")
    parser.add_argument("--single_keys", type=int, default=5_000, help="of reads one at a time")
    parser.add_argument(
        "--stored", type=int, default=1_000_000, help="keys of hosts, memory and workers"
    )
    parser.add_argument("--epochs", type=int, default=300, help="of each kind of keys")
    arguments = parser.parse_args()
    for name in arguments.cases or _CASES:
        with tempfile.TemporaryDirectory(prefix="redis-") as redis, _folder() as folder:
            port = lasting_port()
            with redis_server(Path(redis), "--port", str(port)):
                _CASES[name](port, Path(folder), arguments)


def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="state-store-")


if __name__ == "__main__":
    main()
