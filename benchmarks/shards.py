"""The cost of a streaming shard: ``python -m benchmarks.shards churn|undo|memory``.

The shard has a million entries with keys of 60 and values of 100 bytes. Each epoch changes some of
them, in the order of their keys, as in a task. This runs in one process without Spark; the deltas
are stored in a temporary folder. Times are CPU times of the process, so that other work on the
machine disturbs them little.

``memory`` stores ``--entries`` keys, with a value and a timer each, and then ten times as many, in
separate processes, and compares their peaks of anonymous memory. LMDB's map is not included: it
has pages of a file, which the kernel can reclaim.
"""

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from beam_spark_runner.semantics.timers import Domain
from beam_spark_runner.state.backend import Bag, Cell, StoredTimer
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.delta import delta_name
from beam_spark_runner.state.shards import Shard, open_shard
from beam_spark_runner.state.store import StoredState
from beam_spark_runner.storage.mounted_folder import MountedFolder

_LOADED = 50_000  # entries in an epoch, at first
_STORED = 20_000  # keys in an epoch, where memory is measured


class _Shard:
    """One shard, which runs epochs one after another."""

    def __init__(self, folder: Path, entries: int) -> None:
        self.local, self._deltas = folder / "local", folder / "deltas"
        self._deltas.mkdir()
        chance = random.Random(1)
        self._keys = sorted(chance.randbytes(7) + b"k" * 50 for _ in range(entries))
        self._chance = chance
        self.head: ShardVersion | None = None
        self._number = 0
        for start in range(0, entries, _LOADED):
            self.run(self._keys[start : start + _LOADED])

    @contextmanager
    def opened(self) -> Iterator[Shard]:
        deltas = MountedFolder(str(self._deltas))
        with open_shard(
            self.local, deltas, lineage="job", level=0, partition=0, head=self.head
        ) as shard:
            yield shard

    def some_keys(self, count: int) -> list[bytes]:
        return sorted(self._chance.sample(self._keys, count))

    def run(self, keys: list[bytes], *, is_accepted: bool = True) -> tuple[float, float, float]:
        """Run an epoch; return CPU seconds of its changes, and CPU and wall seconds of sealing."""
        with self.opened() as shard:
            began = time.process_time()
            for key in keys:
                shard.put(b"\0\1c" + key, self._chance.randbytes(50) + bytes(50))
            changed, ending = time.process_time(), time.monotonic()
            self._number += 1
            sealed = shard.seal(ShardVersion(self._number, self._number))
            times = changed - began, time.process_time() - changed, time.monotonic() - ending
        if is_accepted:
            self.head = sealed
        return times

    def stored(self) -> tuple[int, int]:
        """Return the number of deltas, and their size in bytes."""
        sizes = [each.stat().st_size for each in self._deltas.iterdir()]
        return len(sizes), sum(sizes)

    def seconds_to_open(self) -> tuple[float, float]:
        """Return the CPU and wall seconds to open the shard."""
        began, ending = time.process_time(), time.monotonic()
        with self.opened():
            return time.process_time() - began, time.monotonic() - ending


def _undo(folder: Path, entries: int, changes: int) -> None:
    shard = _Shard(folder, entries)
    changing, sealing, _ = shard.run(shard.some_keys(changes))
    print(f"changes: {changing / changes * 1e6:.2f} us of CPU each")
    print(f"sealing them: {sealing / changes * 1e6:.2f} us of CPU each")
    shard.run(shard.some_keys(changes), is_accepted=False)
    cpu, wall = shard.seconds_to_open()
    print(f"opened by undoing {changes:,} changes: {cpu:.4f} s of CPU, {wall:.4f} s")
    shutil.rmtree(shard.local)
    cpu, wall = shard.seconds_to_open()
    print(f"opened by rebuilding: {cpu:.2f} s of CPU, {wall:.2f} s")


def _churn(folder: Path, entries: int, changes: int, epochs: int) -> None:
    shard = _Shard(folder, entries)
    written, sealing_cpu, sealing_wall = [], [], []
    _, before = shard.stored()
    for _ in range(epochs):
        _, cpu, wall = shard.run(shard.some_keys(changes))
        _, after = shard.stored()
        written.append(after - before)
        sealing_cpu.append(cpu)
        sealing_wall.append(wall)
        before = after
    mean, most = sum(written) / epochs / 1e6, max(written) / 1e6
    print(f"written by an epoch: {mean:.2f} MB on average, {most:.2f} MB at most")
    for kind, times in (("of CPU", sealing_cpu), ("", sealing_wall)):
        times.sort()
        print(
            f"sealing: {sum(times) / epochs:.3f} s {kind} on average, "
            f"{times[epochs // 2]:.3f} s median, {times[-1]:.3f} s at most"
        )
    shutil.rmtree(shard.local)
    cpu, wall = shard.seconds_to_open()
    print(f"rebuilding: {cpu:.2f} s of CPU, {wall:.2f} s")


def _memory(entries: int) -> None:
    peaks = []
    for count in (entries, 10 * entries):
        command = [sys.executable, "-m", "benchmarks.shards", "store", "--entries", str(count)]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        peaks.append(int(output))
        print(f"{count:,} keys: {peaks[-1] / 1024:.1f} MB of anonymous memory at most")
    print(f"ratio: {peaks[1] / peaks[0]:.3f}")


def _store(folder: Path, entries: int) -> None:
    """Store keys, epoch by epoch, as steps with state do; print the most KB of anonymous memory."""
    (folder / "deltas").mkdir()
    head: ShardVersion | None = None
    peak = 0
    for number, start in enumerate(range(0, entries, _STORED), 1):
        with open_shard(
            folder / "local",
            MountedFolder(str(folder / "deltas")),
            lineage="job",
            level=0,
            partition=0,
            head=head,
        ) as shard:
            state = StoredState(shard, 1, lambda cell, data: 1)
            for each in range(start, min(start + _STORED, entries)):
                key = each.to_bytes(8, "big")
                state.append(Bag(Cell("step", "value", b"", key)), b"v" * 30)
                timer = StoredTimer("", "timer", b"", Domain.EVENT_TIME, each, each, b"")
                state.set_timers("step", key, [timer])
            head = shard.seal(ShardVersion(number, number))
            needed = {delta_name("job", 0, 0, link.version) for link in shard.chain}
            peak = max(peak, _anonymous_kb())
        for path in (folder / "deltas").iterdir():
            if path.name not in needed:
                path.unlink()
    print(peak)


def _anonymous_kb() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    raise SystemExit("this kernel does not say how much memory is anonymous")


def main() -> None:
    """Run the measurements of the command line, and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("churn", "undo", "memory", "store"))
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=10_000, help="of an epoch")
    parser.add_argument("--epochs", type=int, default=200)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="shards-"))
    try:
        if arguments.what == "memory":
            _memory(arguments.entries)
        elif arguments.what == "store":
            _store(folder, arguments.entries)
        elif arguments.what == "undo":
            _undo(folder, arguments.entries, arguments.changes)
        else:
            _churn(folder, arguments.entries, arguments.changes, arguments.epochs)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
