"""Starts the programs of ``killed_driver``."""

import textwrap
from pathlib import Path

from integration.killed_driver import Kind, Orders
from tests.cli.programs import Program
from tests.segments import CUT

_SCRIPT = """
    from integration.killed_driver import Orders, main
    main(OPTIONS[1:], Orders({}))
    """


def start_driver(folder: Path, orders: Orders, *flags: str, **environment: str) -> Program:
    """Start a program on a separate Spark.

    Args:
        folder: for it alone; made.
        orders: what it runs, and when it dies.
        flags: of its pipeline.
        environment: of its processes.
    """
    folder.mkdir()
    print(orders)
    script = textwrap.dedent(_SCRIPT.format(", ".join(map(repr, orders))))
    if Kind[orders.kind] is Kind.CUT:
        script = CUT + script
    all_flags = "--spark_master_url=local[2]", "--batch_interval_millis=100", *flags
    return Program(folder, script, *all_flags, **environment)
