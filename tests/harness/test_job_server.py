"""The job server as a separate process, with clients of Beam's own in this one."""

import importlib
import os
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import grpc
import pytest
from apache_beam.coders.coders import IntervalWindowCoder
from apache_beam.metrics import Metrics, MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.window import IntervalWindow, NonMergingWindowFn
from prometheus_client.parser import text_string_to_metric_families

from tests.cli.programs import ROOT, Program, lines_of, run

pytestmark = [pytest.mark.grpc, pytest.mark.slow]

_SCRIPT = """
import signal
from pyspark import SparkContext
from beam_spark_runner.__main__ import main

def lose_application(*_):
    SparkContext._active_spark_context._jsc.sc().stop()  # as if the master had killed it

signal.signal(signal.SIGUSR1, lose_application)
sys.exit(main(sys.argv[1:]))
"""
_PROCESS = ["--environment_type=PROCESS", '--environment_config={"command":""}']
CLIENTS = {
    "PortableRunner in PROCESS": ["--runner=PortableRunner", *_PROCESS],
    "PortableRunner in LOOPBACK": ["--runner=PortableRunner", "--environment_type=LOOPBACK"],
    "SparkPortableRunner": ["--runner=SparkPortableRunner"],
    "SparkPortableRunner in LOOPBACK": [
        *("--runner=SparkPortableRunner", "--environment_type=LOOPBACK")
    ],
}
CLIENT_PARAMS = [
    # The server that is attacked has one of Beam's clients in LOOPBACK, too.
    pytest.param(name, marks=pytest.mark.rare)
    if name in ("SparkPortableRunner", "PortableRunner in LOOPBACK")
    else name
    for name in CLIENTS
]
SOON_S = 240.0


class Server:
    """A server with two slots, for two jobs at a time.

    Args:
        folder: For its files; empty.
        flags: More options.
        prelude: What its program does first.
        may_die: Whether it may be killed while it starts; then it has no URLs.
        environment: More variables of its environment.
    """

    def __init__(
        self,
        folder: Path,
        *flags: str,
        prelude: str = "",
        may_die: bool = False,
        **environment: str,
    ) -> None:
        self.program = Program(
            folder,
            prelude + _SCRIPT,
            *("--job_port=0", "--artifact_port=0", "--spark_master_url=local[2]"),
            *("--max_concurrent_jobs=2", "--spark_conf=spark.ui.port=0"),
            *("--metrics_port=0", *flags),
            '--environment_config={"beam:env:docker:v1": {"environment_type": "PROCESS"}}',
            # Some of what the tests pickle is this module's, by its name.
            PYTHONPATH=os.pathsep.join([str(ROOT), str(Path(__file__).parent)]),
            **environment,
        )
        said = self.program.read_line()
        self.url = self.metrics_url = ""
        if may_die and not said:
            return
        assert said.startswith("job service at "), self.program.end()
        self.url = said.split()[3].rstrip(",")
        self.metrics_url = self.program.read_line().removeprefix("metrics at ").strip()

    def submit(self, build: Callable[[beam.Pipeline], Any], *flags: str) -> Any:
        options = PipelineOptions([*flags, f"--job_endpoint={self.url}"])
        pipeline = beam.Pipeline(options=options)
        build(pipeline)
        return pipeline.run()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    here = Server(tmp_path_factory.mktemp("server"))
    yield here
    here.program.send(signal.SIGTERM)
    assert here.program.end(60).code == 0


class Sums(beam.PTransform):  # type: ignore[misc]
    """Sums of three keys, in files."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = str(folder)

    def expand(self, pipeline: Any) -> Any:
        folder = self._folder

        def key(number: int) -> tuple[int, int]:
            Metrics.counter("user", "seen").inc()
            return number % 3, number

        def note(pair: tuple[int, int]) -> None:
            Path(folder, f"{pair[0]}-{pair[1]}").touch()

        numbers = pipeline | beam.Create(range(20)) | "key" >> beam.Map(key)
        return numbers | beam.CombinePerKey(sum) | "note" >> beam.Map(note)


def waits(folder: Path) -> Callable[[beam.Pipeline], Any]:
    """Build a pipeline that begins, and waits until it may end."""
    began, may_end = str(folder / "began"), str(folder / "may end")

    def wait(_: Any) -> None:
        Metrics.counter("user", "begun").inc()
        Path(began).touch()
        deadline = time.monotonic() + SOON_S
        while not Path(may_end).exists() and time.monotonic() < deadline:
            time.sleep(0.05)

    return lambda p: p | beam.Impulse() | "wait" >> beam.Map(wait)


def fails(p: beam.Pipeline) -> None:
    def divide(number: int) -> float:
        return 1 / number

    p | beam.Create([1, 0]) | "divide" >> beam.Map(divide)


@pytest.mark.parametrize("client", CLIENT_PARAMS)
def test_pipelines_give_results_and_metrics(client: str, server: Server, tmp_path: Path) -> None:
    result = server.submit(lambda p: p | Sums(tmp_path), *CLIENTS[client])
    assert result.wait_until_finish() == "DONE"
    assert {path.name for path in tmp_path.iterdir()} == {"0-63", "1-70", "2-57"}
    seen = result.metrics().query(MetricsFilter().with_name("seen"))["counters"]
    assert [(each.attempted, each.committed) for each in seen] == [(20, 20)]


def test_a_result_has_the_page_of_the_servers_spark(server: Server, tmp_path: Path) -> None:
    result = server.submit(lambda p: p | Sums(tmp_path), *_PROCESS, *CLIENTS["SparkPortableRunner"])
    with urllib.request.urlopen(f"{result.spark_ui_url}/api/v1/applications") as page:
        assert b"beam job server" in page.read()
    assert result.wait_until_finish() == "DONE"


def test_the_server_replaces_environments(server: Server, tmp_path: Path) -> None:
    flags = ("--environment_type=DOCKER", "--environment_config=nowhere.example/no/image")
    result = server.submit(lambda p: p | Sums(tmp_path), "--runner=PortableRunner", *flags)
    assert result.wait_until_finish() == "DONE"
    assert {path.name for path in tmp_path.iterdir()} == {"0-63", "1-70", "2-57"}


def test_metrics_of_all_jobs_are_at_one_port(server: Server, tmp_path: Path) -> None:
    def submitted(name: str) -> Any:
        (tmp_path / name).mkdir()
        flags = CLIENTS["SparkPortableRunner"]
        return server.submit(waits(tmp_path / name), *flags, f"--job_name={name}")

    def begun() -> set[tuple[str, str]]:
        with urllib.request.urlopen(server.metrics_url, timeout=60) as answer:
            families = text_string_to_metric_families(answer.read().decode())
        return {
            (sample.labels["job_name"], sample.labels["job_id"])
            for family in families
            for sample in family.samples
            if sample.name == "beam_user_counter_total" and sample.value == 1
        }

    results = {name: submitted(name) for name in ("one", "other")}
    jobs = {(name, result._job_id) for name, result in results.items()}
    assert server.program.wait_until(lambda: begun() == jobs)
    for name, result in results.items():
        (tmp_path / name / "may end").touch()
        assert result.wait_until_finish() == "DONE"
    assert server.program.wait_until(lambda: begun() == set())


@pytest.mark.parametrize("client", CLIENT_PARAMS)
def test_errors_name_the_step_and_show_the_traceback(client: str, server: Server) -> None:
    result = server.submit(fails, *CLIENTS[client])
    with pytest.raises(RuntimeError, match="divide: ZeroDivisionError") as raised:
        result.wait_until_finish()
    assert "return 1 / number" in str(raised.value)
    assert result.state == "FAILED"
    assert [each for each in os.listdir(server.program.temp) if each.startswith("beam-job")] == []


def test_files_of_clients_reach_their_code(server: Server, tmp_path: Path) -> None:
    module = tmp_path / "module_of_a_client.py"
    module.write_text("COLOUR = 'green'\n")
    seen = str(tmp_path / "seen")

    def note(_: Any) -> None:
        found: Any = importlib.import_module("module_of_a_client")
        Path(seen).write_text(f"{found.COLOUR} {Path(found.__file__).parent}")

    def build(p: beam.Pipeline) -> None:
        p | beam.Impulse() | "note" >> beam.Map(note)

    flags = CLIENTS["SparkPortableRunner"]
    result = server.submit(build, *flags, f"--files_to_stage={module}")
    assert result.wait_until_finish() == "DONE"
    colour, folder = Path(seen).read_text().split()
    assert (colour, Path(folder) == tmp_path) == ("green", False)
    (staged,) = server.program.temp.glob("beam-staged-*")
    # Clients are told of the end first.
    assert server.program.wait_until(lambda: list(staged.iterdir()) == [])


class Bomb:
    """Goes off where it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def __reduce__(self) -> Any:
        return _explode, (self._folder,)


def _explode(folder: str) -> str:
    Path(folder, str(os.getpid())).touch()
    return folder


def test_the_server_never_unpickles(server: Server, tmp_path: Path) -> None:
    bomb = Bomb(tmp_path)

    def build(p: beam.Pipeline) -> None:
        values = p | beam.Create([("k", 1), ("k", 2)])
        windowed = values | beam.WindowInto(Armed(bomb))
        windowed | beam.CombinePerKey(ArmedSum(bomb)) | "print" >> beam.Map(lambda _, bomb=bomb: _)

    assert server.submit(build, *CLIENTS["SparkPortableRunner"]).wait_until_finish() == "DONE"
    exploded = {path.name for path in tmp_path.iterdir()} - {str(os.getpid())}
    assert exploded
    assert str(server.program.pid) not in exploded


class Armed(NonMergingWindowFn):  # type: ignore[misc]
    """Windows whose function Beam pickles, with a bomb."""

    def __init__(self, bomb: Any) -> None:
        self.bomb = bomb

    def assign(self, context: Any) -> list[Any]:
        return [IntervalWindow(0, 10)]

    def get_window_coder(self) -> Any:
        return IntervalWindowCoder()


class ArmedSum(beam.CombineFn):  # type: ignore[misc]
    """A sum, with a bomb."""

    def __init__(self, bomb: Any) -> None:
        self.bomb = bomb

    def create_accumulator(self) -> int:
        return 0

    def add_input(self, accumulator: int, value: int) -> int:
        return accumulator + value

    def merge_accumulators(self, accumulators: Any) -> int:
        return sum(accumulators)

    def extract_output(self, accumulator: int) -> int:
        return accumulator


def ticks(folder: Path) -> Callable[[beam.Pipeline], Any]:
    """Build a pipeline whose source has no end."""

    def tick(_: Any) -> None:
        (folder / "ticked").touch()

    return lambda p: p | PeriodicImpulse(fire_interval=0.2) | beam.Map(tick)


def test_a_job_is_drained(server: Server, tmp_path: Path) -> None:
    result = server.submit(ticks(tmp_path), *CLIENTS["PortableRunner in PROCESS"])
    server.program.wait_for(tmp_path / "ticked")
    with grpc.insecure_channel(server.url) as channel:
        stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
        stub.Drain(beam_job_api_pb2.DrainJobRequest(job_id=result._job_id))
        states = stub.GetStateStream(beam_job_api_pb2.GetJobStateRequest(job_id=result._job_id))
        names = [beam_job_api_pb2.JobState.Enum.Name(each.state) for each in states]
    assert names == ["STOPPED", "STARTING", "RUNNING", "DRAINING", "DRAINED"]
    with pytest.raises(RuntimeError, match="DRAINED"):  # Beam's client takes it for a failure
        result.wait_until_finish()


def test_a_job_in_batch_is_not_drained(server: Server, tmp_path: Path) -> None:
    result = server.submit(waits(tmp_path), *CLIENTS["PortableRunner in PROCESS"])
    server.program.wait_for(tmp_path / "began")
    with grpc.insecure_channel(server.url) as channel:
        stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
        with pytest.raises(grpc.RpcError, match="draining a pipeline that runs in batch"):
            stub.Drain(beam_job_api_pb2.DrainJobRequest(job_id=result._job_id))
    (tmp_path / "may end").touch()
    assert result.wait_until_finish() == "DONE"


@pytest.mark.rare
def test_jobs_do_not_disturb_each_other(server: Server, tmp_path: Path) -> None:
    for name in ("long", "doomed"):
        (tmp_path / name).mkdir()
    flags = CLIENTS["SparkPortableRunner"]
    long = server.submit(waits(tmp_path / "long"), *flags)
    server.program.wait_for(tmp_path / "long" / "began")
    doomed = server.submit(waits(tmp_path / "doomed"), *flags)
    server.program.wait_for(tmp_path / "doomed" / "began")
    third = server.submit(fails, *flags)
    assert third.state == "STOPPED"
    doomed.cancel()
    with pytest.raises(RuntimeError, match="CANCELLED"):
        doomed.wait_until_finish()
    with pytest.raises(RuntimeError, match="divide: ZeroDivisionError"):
        third.wait_until_finish()
    assert long.state == "RUNNING"
    (tmp_path / "long" / "may end").touch()
    assert long.wait_until_finish() == "DONE"


@pytest.mark.rare
def test_a_server_that_is_ended_tells_its_clients(tmp_path: Path) -> None:
    server = Server(tmp_path)
    result = server.submit(waits(tmp_path), *CLIENTS["SparkPortableRunner"], "--job_name=first")
    server.program.wait_for(tmp_path / "began")
    with grpc.insecure_channel(server.url) as channel:
        stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
        states = stub.GetStateStream(beam_job_api_pb2.GetJobStateRequest(job_id=result._job_id))
        server.program.send(signal.SIGTERM)
        names = [beam_job_api_pb2.JobState.Enum.Name(each.state) for each in states]
    assert names == ["STOPPED", "STARTING", "RUNNING", "CANCELLED"]
    ended = server.program.end(60)
    assert (ended.code, ended.seconds < 30) == (0, True)
    assert "INFO starting Spark local[2] …" in ended.err
    job = f'INFO {result._job_id} "first" of 127.0.0.1: '
    assert [line.partition(job)[2] for line in lines_of(ended.err) if job in line][:-1] == [
        "waiting",
        "waiting → starting",
        "starting → running",
    ]
    assert f"{job}running → cancelled in 0:" in ended.err


def test_a_wrong_option_is_one_line_and_starts_nothing(tmp_path: Path) -> None:
    ended = run(tmp_path, _SCRIPT, "--job_host=0.0.0.0")
    assert ended.code == 2
    (line,) = lines_of(ended.err)
    assert line.startswith("error: --job_host: other machines can reach 0.0.0.0")
    assert ended.out == ""


@pytest.mark.rare
def test_another_application_is_started_when_one_has_ended(tmp_path: Path) -> None:
    server = Server(tmp_path)
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    try:
        running = server.submit(waits(tmp_path), *CLIENTS["PortableRunner in PROCESS"])
        server.program.wait_for(tmp_path / "began")
        server.program.send(signal.SIGUSR1)
        with pytest.raises(RuntimeError, match="Spark was stopped"):
            running.wait_until_finish()
        assert running.state == "FAILED"
        for folder in (tmp_path / "first", tmp_path / "second"):
            sums = Sums(folder)
            result = server.submit(sums.expand, *CLIENTS["PortableRunner in PROCESS"])
            assert result.wait_until_finish() == "DONE"
            assert {path.name for path in folder.iterdir()} == {"0-63", "1-70", "2-57"}
    finally:
        server.program.send(signal.SIGTERM)
    ended = server.program.end(60)
    assert ended.code == 0
    assert ended.err.count("the Spark application has ended: another one is started") == 1
