"""Whole programs whose user code runs in containers of Beam's Python SDK, and what they leave.

Alone, a program has a separate Spark. Otherwise it submits to a job server, in a
separate process, as client of this package or as Beam's ``PortableRunner``.
"""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from beam_spark_runner.harness.environments import docker
from integration.container_engine import DOCKER, Engine
from integration.container_images import python_image, python_image_with_venvs
from tests.cli.programs import Program, run
from tests.harness.processes import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.grpc, pytest.mark.spark]

ALONE = ("--spark_master_url=local[2]",)
ENDS_WITHIN_S = 480.0  # on a machine that has a lot to do
SERVER = """
from beam_spark_runner.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


class Server:
    """A job server with two slots."""

    def __init__(self, folder: Path) -> None:
        self.program = Program(
            folder,
            SERVER,
            *("--job_port=0", "--artifact_port=0", "--spark_master_url=local[2]"),
            "--spark_conf=spark.ui.enabled=false",
        )
        said = self.program.read_line()
        assert said.startswith("job service at "), self.program.end()
        self.endpoint = f"--job_endpoint={said.split()[3].rstrip(',')}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("server"))
    yield running
    running.program.send(signal.SIGTERM)
    assert running.program.end(60).code == 0


@pytest.fixture(autouse=True)
def nothing_is_left(engine: Engine) -> Iterator[None]:
    assert engine.containers() == set()
    yield
    wait_for(lambda: engine.containers() == set())


@pytest.fixture(params=["alone", "SparkPortableRunner", "PortableRunner"])
def client(request: pytest.FixtureRequest, engine: Engine) -> tuple[str, ...]:
    """Options of a program: where it gets its Spark."""
    if request.param == "alone":
        return ALONE
    if engine != DOCKER:
        pytest.skip("what runs containers is the same with a server; one engine shows that")
    endpoint: str = request.getfixturevalue("server").endpoint
    return (f"--runner={request.param}", endpoint)


def inside(engine: Engine, image: str) -> list[str]:
    return [
        *("--environment_type=DOCKER", f"--environment_config={image}"),
        f"--docker_executable={engine.program}",
    ]


PIPELINE = """
from apache_beam.coders import VarIntCoder
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.metrics import Metrics, MetricsFilter
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.userstate import BagStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import FixedWindows, TimestampedValue

PACKAGES = "/opt/apache/beam/packages"  # of the image, and of no machine

class Numbers(beam.DoFn, beam.RestrictionProvider):
    def initial_restriction(self, count):
        return OffsetRange(0, count)
    def create_tracker(self, restriction):
        return OffsetRestrictionTracker(restriction)
    def restriction_size(self, count, restriction):
        return restriction.size()
    def split(self, count, restriction):
        middle = (restriction.start + restriction.stop) // 2
        yield OffsetRange(restriction.start, middle)
        yield OffsetRange(middle, restriction.stop)
    def process(self, count, tracker=beam.DoFn.RestrictionParam()):
        number = tracker.current_restriction().start
        while tracker.try_claim(number):
            Metrics.counter("numbers", "claimed").inc()
            yield number
            number += 1

class Collect(beam.DoFn):
    KEPT = BagStateSpec("kept", VarIntCoder())
    END = TimerSpec("end", beam.TimeDomain.WATERMARK)

    def process(self, pair, names, window=beam.DoFn.WindowParam,
                kept=beam.DoFn.StateParam(KEPT), end=beam.DoFn.TimerParam(END)):
        assert pair[0] in names
        kept.add(pair[1])
        end.set(window.max_timestamp())

    @on_timer(END)
    def finish(self, key=beam.DoFn.KeyParam, kept=beam.DoFn.StateParam(KEPT)):
        yield key, sorted(kept.read()), os.path.isdir(PACKAGES)

p = beam.Pipeline(argv=OPTIONS)
names = beam.pvalue.AsDict(p | "names" >> beam.Create([(0, "even"), (1, "odd")]))
collected = (
    p
    | beam.Create([40])
    | beam.ParDo(Numbers())
    | beam.Map(lambda number: TimestampedValue((number % 2, number), number))
    | beam.WindowInto(FixedWindows(20))
    | beam.ParDo(Collect(), names)
)
expected = [
    (key, [number for number in range(start, start + 20) if number % 2 == key], True)
    for key in (0, 1)
    for start in (0, 20)
]
assert_that(collected, equal_to(expected))
result = p.run()
print(result.wait_until_finish())
counters = result.metrics().query(MetricsFilter().with_name("claimed"))["counters"]
print([counter.committed for counter in counters])
"""


def test_a_splittable_dofn_side_inputs_state_and_timers(
    engine: Engine, client: tuple[str, ...], tmp_path: Path
) -> None:
    program = Program(tmp_path, PIPELINE, *inside(engine, python_image(engine)), *client)
    ended = program.end(ENDS_WITHIN_S)
    assert ended.out.splitlines() == ["DONE", "[40]"], ended.err


def test_word_count_of_a_folder_that_containers_have_too(
    engine: Engine, client: tuple[str, ...], tmp_path: Path
) -> None:
    """Beam's own program, which reads and writes files where its steps run."""
    script = """
    from apache_beam.examples import wordcount
    wordcount.run(OPTIONS)
    """
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "input").write_text("to be or not to be\n" * 100)
    program = Program(
        tmp_path,
        script,
        *inside(engine, python_image(engine)),
        f"--docker_executable={engine.sharing(shared, tmp_path / 'engine')}",
        *client,
        *(f"--input={shared}/input", f"--output={shared}/counts"),
    )
    ended = program.end(ENDS_WITHIN_S)
    assert ended.code == 0, ended.err
    lines = [line for file in shared.glob("counts*") for line in file.read_text().splitlines()]
    assert Counter(lines) == Counter(["to: 200", "be: 200", "or: 100", "not: 100"])


def test_packages_are_installed_in_the_container(
    engine: Engine, client: tuple[str, ...], tmp_path: Path
) -> None:
    """By the boot program, in a virtual environment, as in Beam's own images."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "setup.py").write_text(
        'from setuptools import setup\nsetup(name="greeting", version="1", py_modules=["greeting"])'
    )
    (package / "greeting.py").write_text("import sys\nWORDS = 'hello', sys.prefix\n")
    script = """
    def greet(name):
        import greeting
        return (*greeting.WORDS, name)

    from apache_beam.testing.util import assert_that

    def check(found):
        ((word, prefix, name),) = found
        assert (word, name) == ("hello", "you"), found
        assert prefix.startswith("/opt/apache/beam-venv/"), found

    with beam.Pipeline(argv=OPTIONS) as p:
        assert_that(p | beam.Create(["you"]) | beam.Map(greet), check)
    """
    setup = f"--setup_file={package / 'setup.py'}"
    image = python_image_with_venvs(engine)
    ended = Program(tmp_path, script, *inside(engine, image), setup, *client).end(ENDS_WITHIN_S)
    assert ended.code == 0, ended.err


def test_user_code_that_fails(engine: Engine, client: tuple[str, ...], tmp_path: Path) -> None:
    script = """
    with beam.Pipeline(argv=OPTIONS) as p:
        p | beam.Create([2, 1, 0]) | "Divide" >> beam.Map(lambda n: 1 // n)
    """
    ended = run(tmp_path, script, *inside(engine, python_image(engine)), *client)
    assert ended.code == 1
    assert "ZeroDivisionError" in ended.err
    assert "Divide" in ended.err


def test_a_process_in_the_container_that_dies(
    engine: Engine, client: tuple[str, ...], tmp_path: Path
) -> None:
    """The boot program starts another one, which nobody waits for; its task has failed by then."""
    script = """
    def die(n):
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)

    with beam.Pipeline(argv=OPTIONS) as p:
        p | beam.Create([1]) | "Die" >> beam.Map(die)
    """
    ended = run(tmp_path, script, *inside(engine, python_image(engine)), *client)
    assert ended.code == 1
    assert "Die" in ended.err


SLEEPER = """
import threading

def wait(x):
    import time
    open("/tmp/began", "w").close()
    time.sleep(600)

def cancel_when_asked():
    while not os.path.exists("cancel"):
        time.sleep(0.1)
    result.cancel()

p = beam.Pipeline(argv=OPTIONS)
p | beam.Create(["a"]) | beam.Map(wait)
result = p.run()
threading.Thread(target=cancel_when_asked, daemon=True).start()
print(result.wait_until_finish())
"""


def has_begun(engine: Engine) -> bool:
    return any(engine.file_is_in(each, "/tmp/began") for each in engine.containers())


@pytest.fixture
def sleeper(engine: Engine, client: tuple[str, ...], tmp_path: Path) -> Iterator[Program]:
    """A program whose user code sleeps in a container."""
    program = Program(tmp_path, SLEEPER, *inside(engine, python_image(engine)), *client)
    if not program.wait_until(lambda: has_begun(engine)):
        raise AssertionError(program.end().err)
    yield program
    if psutil.pid_exists(program.pid):
        program.send(signal.SIGKILL)


def test_a_job_is_cancelled(engine: Engine, sleeper: Program) -> None:
    (sleeper.folder / "cancel").touch()
    ended = sleeper.end()
    assert "CANCELLED" in ended.out + ended.err  # which Beam's PortableRunner raises as an error


@pytest.mark.parametrize("who", ["guard", "worker", "program"])
def test_a_kill_leaves_no_container(who: str, engine: Engine, tmp_path: Path) -> None:
    program = Program(tmp_path, SLEEPER, *inside(engine, python_image(engine)), *ALONE)
    try:
        assert program.wait_until(lambda: has_begun(engine))
        (owner,) = {
            engine.inspect(each)["Config"]["Labels"][docker.OWNER_LABEL]
            for each in engine.containers()
        }
        worker = psutil.Process(int(owner.split("/")[2]))
        (guard,) = (each for each in worker.children() if "guard.py" in " ".join(each.cmdline()))
        victims = {"guard": guard, "worker": worker, "program": psutil.Process(program.pid)}
        os.kill(victims[who].pid, signal.SIGKILL)
        ended = program.end(jvm_was_killed=who == "program")
        assert ended.code != 0
    finally:
        if psutil.pid_exists(program.pid):
            program.send(signal.SIGKILL)


def test_a_job_server_is_killed(engine: Engine, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("server", "client")]
    for folder in folders:
        folder.mkdir()
    server = Server(folders[0])
    try:
        options = [*inside(engine, python_image(engine)), server.endpoint]
        client = Program(folders[1], SLEEPER, *options)
        assert client.wait_until(lambda: has_begun(engine))
    finally:
        server.program.send(signal.SIGKILL)
    assert server.program.end(jvm_was_killed=True).code == -signal.SIGKILL
    assert "JobServerLostError" in client.end().err
