"""How a job server ends, as a process: in time, and with all that it has started."""

import signal
import threading
from pathlib import Path

import grpc
import pytest
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

from tests.cli.programs import Program

pytestmark = [
    pytest.mark.grpc,
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path("/proc/self/environ").exists(), reason="looks for processes in /proc"
    ),
]

MAIN = """
from beam_spark_runner.__main__ import main
sys.exit(main(sys.argv[1:]))
"""
FLAGS = (
    *("--job_port=0", "--artifact_port=0", "--spark_master_url=local[1]"),
    "--spark_conf=spark.ui.enabled=false",
)
LOOPS = """
import threading
from beam_spark_runner.job.server.jobs import Jobs

def loop():
    open("loops", "w").close()
    while True:
        pass

"""
IN_A_CALL = """
Jobs.all = lambda jobs, all=Jobs.all: loop() if "job-api" in threading.current_thread().name \\
    else all(jobs)
"""
WITH_THE_LOCK = """
def all(jobs):
    with jobs._lock:
        loop()

Jobs.all = all
"""
IN_A_THREAD = """
Jobs.all = lambda jobs: [*filter(None, [threading.Thread(target=loop).start()])]
"""


@pytest.mark.parametrize(
    ("loops", "code"),
    [
        pytest.param(IN_A_CALL, 0, id="in a call"),
        pytest.param(WITH_THE_LOCK, 1, id="with the lock"),
        pytest.param(IN_A_THREAD, 0, id="in a thread", marks=pytest.mark.rare),
    ],
)
def test_a_thread_that_loops_does_not_keep_the_server(
    tmp_path: Path, loops: str, code: int
) -> None:
    program = Program(tmp_path, LOOPS + loops + MAIN, *FLAGS)
    url = program.read_line().split()[3].rstrip(",")
    with grpc.insecure_channel(url) as channel:
        stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
        call = stub.GetJobs.future(beam_job_api_pb2.GetJobsRequest())
        program.wait_for(tmp_path / "loops")
        program.send(signal.SIGTERM)
        ended = program.end(60, jvm_was_killed=code != 0)  # it may leave temporary files, too
        call.cancel()
    assert ended.code == code
    assert ended.seconds < 30


IN_THE_SESSION = """
import glob, tempfile
from pyspark.sql import SparkSession

def build(builder, get=SparkSession.Builder.getOrCreate):
    (of_jvm,) = glob.glob(f"{tempfile.gettempdir()}/beam-spark-*/jvm-*")
    open(f"{of_jvm}/left", "w").close()  # as Spark leaves files if its start is interrupted
    open("builds", "w").close()
    return get(builder)

SparkSession.Builder.getOrCreate = build
"""


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGTERM, id="SIGTERM"),
        pytest.param(signal.SIGINT, id="Ctrl-C", marks=pytest.mark.rare),
    ],
)
@pytest.mark.parametrize("moment", ["the JVM starts", "the session is built"])
def test_a_signal_while_spark_starts_is_heard(
    tmp_path: Path, moment: str, number: signal.Signals
) -> None:
    program = Program(tmp_path, IN_THE_SESSION + MAIN, *FLAGS)
    if moment == "the JVM starts":
        program.wait_for_temporary("tmp*")  # of pyspark: there the JVM will write its port
    else:
        program.wait_for(tmp_path / "builds")
    program.send(number)
    ended = program.end(60)
    assert (ended.code, ended.out) == (0, "")
    assert "ended while Spark was starting" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.rare
def test_signals_again_and_again_end_it_as_well(tmp_path: Path) -> None:
    program = Program(tmp_path, MAIN, *FLAGS)
    program.wait_for_temporary("tmp*")
    ended = threading.Event()

    def send() -> None:
        while not ended.wait(0.02):
            program.send(signal.SIGINT)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        assert program.wait_until(lambda: False) is False  # until it has ended
    finally:
        ended.set()
        sender.join()
    end = program.end(60)
    assert (end.code, end.out) == (0, "")
