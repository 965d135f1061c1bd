"""Describes an epoch to its tasks."""

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.recovery.heads import KeyedHead
from beam_spark_runner.recovery.manifest import Manifest
from beam_spark_runner.scheduling.epochs import Epoch


def described_epoch(
    last: Manifest, epoch: Epoch, *, clock_stands: bool, budget_us: int, due_us: int
) -> reports_pb2.Epoch:
    """Return what the tasks of an epoch know of it, and of what was committed before.

    Args:
        last: the newest manifest.
        epoch: the epoch.
        clock_stands: processing time does not pass while it runs.
        budget_us: the time for which tasks process restrictions.
        due_us: the time for which each stage fires timers and panes that are due.
    """
    return reports_pb2.Epoch(
        number=epoch.number,
        fence=last.fence,
        clock_us=epoch.clock_us,
        committed_clock_us=last.clock_us,
        heads=[
            reports_pb2.ShardHead(
                level=level,
                partition=partition,
                epoch=head.delta.epoch,
                attempt=head.delta.attempt,
            )
            for (level, partition), head in last.heads.items()
        ],
        watermarks_us=last.watermarks_us,
        clock_stands=clock_stands,
        budget_us=budget_us,
        due_us=due_us,
        drains=epoch.drains,
        views=[
            reports_pb2.View(dest=id_.dest, window=id_.window, file=view.file)
            for id_, view in sorted(last.views.items())
        ],
        namespace=last.namespace,
        stores={
            place.stage: last.stores[name]
            for name, place in last.plan.items()
            if name in last.stores
        },
        keyed=[_keyed_head(*place, head) for place, head in last.keyed.items()],
    )


def _keyed_head(store: int, partition: int, head: KeyedHead) -> reports_pb2.KeyedHead:
    proto = reports_pb2.KeyedHead(store=store, partition=partition)
    if head.own is not None:
        proto.epoch, proto.attempt = head.own.delta
    for part in head.parts:
        chains = (
            reports_pb2.EarlierHead(
                partition=chain.partition,
                epoch=chain.head.delta.epoch,
                attempt=chain.head.delta.attempt,
            )
            for chain in part.chains
        )
        proto.parts.add(first=part.first, end=part.end, chains=chains)
    return proto
