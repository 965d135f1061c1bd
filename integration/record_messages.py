"""Record what real SDKs send, as the corpus of ``tests.fuzz``.

``python -m integration.record_messages python go`` runs small pipelines of these SDKs on a job
server that writes down all messages. Go needs Go's module proxy. Of another client, the messages
are recorded with ``--serve``, until a line comes on the standard input.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from integration.go_sdk.programs import build, sources
from integration.go_sdk.run import client_of, run_test
from integration.job_server import job_server
from integration.message_tap import environment
from integration.recorded_messages import compact
from integration.recorded_pipelines import PIPELINES
from tests.fuzz import corpus

_GO_PACKAGE = "go/test/integration/primitives"
_GO_TESTS = (
    *("TestBagState", "TestCombiningState", "TestMapState", "TestSetState", "TestValueState"),
    *("TestTimers_EventTime_Unbounded", "TestTimers_EventTime_Bounded"),
    *("TestTimers_ProcessingTime", "TestOrderedListState", "TestParDoSideInput"),
    *("TestParDoMultiMapSideInput", "TestMapStateClear", "TestBagStateClear"),
    *("TestWindowSums_GBK", "TestValidateWindowedSideInputs", "TestDrain", "TestCheckpointing"),
    *("TestOomParDo", "TestParDoMultiOutput", "TestTriggerAlways", "TestCombinePerKey"),
)


def main() -> None:
    """Parse the command line, run the pipelines, write the corpus."""
    parser = argparse.ArgumentParser(prog="python -m integration.record_messages")
    parser.add_argument("sdks", nargs="*", help="python, go")
    parser.add_argument("--serve", metavar="SDK", help="of a client of your own")
    given = parser.parse_args()
    runs: dict[str, Callable[[str], None]] = {"python": _run_python, "go": _run_go}
    for sdk in given.sdks:
        record(sdk, runs[sdk])
    if given.serve:
        record(given.serve, _wait)


def record(sdk: str, run: Callable[[str], None]) -> None:
    """Record what ``run`` has an SDK send to a job server, whose address it gets."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        with _recorded(folder), job_server() as url:
            run(url)
        path = corpus.write(sdk, compact(folder))
    print(f"{path}: {path.stat().st_size >> 10} KB", flush=True)


@contextmanager
def _recorded(folder: Path) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(environment(folder))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _run_python(url: str) -> None:
    for name, build_pipeline in PIPELINES.items():
        for kind in ("LOOPBACK", "default"):
            print(f"{name}, {kind}", file=sys.stderr, flush=True)
            options = PipelineOptions(
                [
                    "--runner=beam_spark_runner.SparkPortableRunner",
                    f"--job_endpoint={url}",
                    *([f"--environment_type={kind}"] if kind == "LOOPBACK" else []),
                    f"--job_name={name.replace(' ', '-')}",
                ]
            )
            pipeline = beam.Pipeline(options=options)
            build_pipeline(pipeline)
            try:
                pipeline.run().wait_until_finish()
            except Exception as error:
                print(f"{name}: {error}"[:500], file=sys.stderr, flush=True)


def _run_go(url: str) -> None:
    found = sources(beam.__version__)
    cache = Path(__file__).parents[1] / "build" / "go"
    program = build(_GO_PACKAGE, found, cache)
    with client_of(url) as client, TemporaryDirectory() as logs:
        for test in _GO_TESTS:
            log = Path(logs) / test
            outcome = run_test(program, found / _GO_PACKAGE, test, url, client, 120.0, log)
            print(test, outcome, file=sys.stderr, flush=True)


def _wait(url: str) -> None:
    print(url, flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
