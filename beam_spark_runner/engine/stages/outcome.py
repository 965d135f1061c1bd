"""What a stage reports of an epoch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from beam_spark_runner._generated import reports_pb2


@dataclass
class Outcome:
    """What a stage reports of an epoch, for the driver to decide when the next one begins.

    Attributes:
        was_cut_off: its source had more than the epoch's budget allowed.
        awaits_commit: stable input is stored, for the next epoch.
        was_interrupted: timers or panes that are due have not fired.
        awaited_us: the earliest end of the windows of side inputs that elements wait for, by
            destination that gathers the side input; empty: no elements wait.
        needs: see ``Settled``, of the records that are left.
        left: how many records are left, and their least hold; None: none are.
        waiting: describes elements that wait for side inputs; None: there are none.
        views: the windows of a side input that have new content.
        table_rows: the files with rows for a table.
        monitoring_infos: those of bundles in which the SDK has helped the stage.
    """

    was_cut_off: bool = False
    awaits_commit: bool = False
    was_interrupted: bool = False
    awaited_us: Mapping[int, int] = field(default_factory=dict)
    waiting: reports_pb2.Waiting | None = None
    needs: frozenset[str] = frozenset()
    left: reports_pb2.Residuals | None = None
    views: Sequence[reports_pb2.View] = ()
    table_rows: Sequence[reports_pb2.TableRows] = ()
    monitoring_infos: list[bytes] = field(default_factory=list)
