"""Beam's Nexmark queries in streaming, here and on Prism: ``python -m benchmarks.nexmark``.

Each runner has a separate process; a query runs on one after the other. The first query runs
once more before, to warm them. All results are checked against plain loops over the events. A
runner that gives a wrong result, fails, or takes too long has no figure. Machines are shared and
noisy: only ratios of one run mean anything.

Prism is taken from $PRISM, from next to this Python, or from the path.
``make .venv-conformance/bin/prism`` installs one.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.nexmark.events import Workload
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.runners import RUNNERS, Outcome, Process, answers_alone, serve
from benchmarks.nexmark.source import Source
from tests.spark.random_streams.references import prism


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.nexmark",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "queries", nargs="*", type=int, choices=[*QUERIES, []], help="all, if none is named"
    )
    parser.add_argument("--events", type=int, default=300_000, help="of each query")
    parser.add_argument("--seed", type=int, default=0, help="of the events")
    parser.add_argument("--rate", type=int, default=1000, help="events per second of event time")
    parser.add_argument(
        "--disorder", type=int, default=1, help="so many events in a row are out of order"
    )
    parser.add_argument(
        "--late",
        action="store_true",
        help="the watermark does not wait for events that are out of order",
    )
    parser.add_argument("--shards", type=int, default=4, help="of the source")
    parser.add_argument(
        "--pause-every",
        type=int,
        default=0,
        help="events of a shard, after which it gives its remainder back; 0: never",
    )
    parser.add_argument("--runners", nargs="+", choices=RUNNERS, default=["spark", "prism"])
    parser.add_argument("--runs", type=int, default=1, help="of each query; the best counts")
    parser.add_argument("--limit", type=float, default=120, help="seconds for a query")
    parser.add_argument("--serve", choices=RUNNERS, help=argparse.SUPPRESS)
    return parser


def main() -> int:
    """Run the queries that are named, and print a table; fail if the first runner does."""
    parser = _parser()
    arguments = parser.parse_args()
    try:
        workload = Workload(
            count=arguments.events,
            seed=arguments.seed,
            rate=arguments.rate,
            disorder=arguments.disorder,
            late=arguments.late,
        )
    except ValueError as error:
        parser.error(str(error))
    if arguments.serve:
        source = Source(
            workload=workload, shards=arguments.shards, pause_every=arguments.pause_every
        )
        serve(arguments.serve, source, sys.stdin, answers_alone())
        return 0
    if "prism" in arguments.runners and prism() is None:
        parser.error("no Prism: neither in $PRISM, next to this Python, nor on the path")
    with tempfile.TemporaryDirectory(prefix="nexmark-") as scratch:
        command = [sys.executable, "-m", "benchmarks.nexmark", "--serve"]
        processes = {
            name: Process([*command, name, *sys.argv[1:]], arguments.limit, Path(scratch, name))
            for name in arguments.runners
        }
        try:
            return _compare(processes, arguments.queries or [*QUERIES], arguments)
        finally:
            for process in processes.values():
                process.end()


def _compare(
    processes: dict[str, Process], queries: list[int], arguments: argparse.Namespace
) -> int:
    for process in processes.values():
        process.run(queries[0])
    first, *others = processes
    print(f"{arguments.events:,} events, {arguments.rate:,} for each second of event time\n")
    heads = ["query", *(f"{name}, events/s" for name in processes)]
    heads += [f"{first} / {name}" for name in others]
    print(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}", flush=True)
    notes, failed = [], False
    for query in queries:
        runs = [
            {name: each.run(query) for name, each in processes.items()}
            for _ in range(arguments.runs)
        ]
        outcomes = {name: _best([run[name] for run in runs]) for name in processes}
        cells = [
            "no" if each.problem else f"{arguments.events / each.seconds:,.0f}"
            for each in outcomes.values()
        ]
        for other in others:
            both = outcomes[first], outcomes[other]
            wrong = any(each.problem for each in both)
            cells.append("" if wrong else f"{both[1].seconds / both[0].seconds:.2f}")
        print(f"| {' | '.join([str(query), *cells])} |", flush=True)
        for name, each in outcomes.items():
            text = each.problem or each.note
            notes += [f"query {query} on {name}: {text}"] if text else []
        failed |= bool(outcomes[first].problem)
    print("", *notes, sep="\n")
    return int(failed)


def _best(outcomes: list[Outcome]) -> Outcome:
    """Return the fastest outcome, or the first one with a problem."""
    problems = [each for each in outcomes if each.problem]
    return problems[0] if problems else min(outcomes, key=lambda each: each.seconds)


if __name__ == "__main__":
    sys.exit(main())
