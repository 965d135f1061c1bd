"""The distributions in ``dist``: installed as README.md says, with all extras, and their licences.

``make package-test`` builds them, lets twine, check-wheel-contents and actionlint check what these
can, and runs these tests.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from beam_spark_runner.core.version import VERSION
from beam_spark_runner.recovery.manifest import epoch_in
from integration.licences import licences_of, refused
from tests.documented import blocks, typed_in
from tests.test_docs import ROOT

# pip loads some hundred megabytes for each environment.
pytestmark = pytest.mark.timeout(3600)

DIST = ROOT / "dist"
TOOLS = ROOT / ".venv-package" / "bin"
README = [block for block in blocks() if block.page == ROOT / "README.md" and block.language]
CONSOLE = [block.text for block in README if block.language == "console"]
INSTALL, START, KILL = CONSOLE

FRAMES = """
import sys
import apache_beam as beam
from apache_beam.dataframe.convert import to_dataframe, to_pcollection
from apache_beam.options.pipeline_options import PipelineOptions

with beam.Pipeline(options=PipelineOptions(sys.argv[1:])) as pipeline:
    rows = pipeline | beam.Create([("a", 1), ("b", 2), ("a", 3)]) | beam.Select(
        word=lambda row: str(row[0]), count=lambda row: int(row[1]))
    sums = to_dataframe(rows).groupby("word").sum()
    to_pcollection(sums, include_indexes=True) | beam.Map(lambda row: print(*row, flush=True))
"""
# A name that each extra brings, by extra.
EXTRAS = {
    "connect": "pyspark.sql.connect.session",
    "kafka": "beam_spark_runner.transforms.kafka, confluent_kafka",
    "page": "jinja2, starlette, uvicorn",
    "redis": "redis, hiredis",
    "s3": "apache_beam.io.aws.s3filesystem, boto3",
}
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="module")
def wheel() -> Path:
    """The wheel of this version."""
    (found,) = DIST.glob(f"beam_spark_runner-{VERSION}-*.whl")
    return found


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the source distribution contains, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(DIST / f"beam_spark_runner-{VERSION}.tar.gz") as opened:
        opened.extractall(folder, filter="data")
    return folder / f"beam_spark_runner-{VERSION}"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What README.md calls ``~``, where the wheel is installed."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def from_wheel(home: Path, wheel: Path, source: Path) -> Path:
    """A folder with what README's commands read, after its first command with the wheel alone."""
    for folder in ("docs", "examples"):
        (home / folder).symlink_to(source / folder)
    counted = _install_and_count(home, home, f"pip install --quiet {wheel}")
    assert counted > 1000
    return home


def _install_and_count(folder: Path, home: Path, install: str) -> int:
    """Run README's first command in a folder; return how many words it has counted."""
    (command,) = typed_in(INSTALL.replace("&&\n  python -m", "&& python -m"))
    assert "pip install ." in command
    command = command.replace("~", str(home)).replace("pip install .", install)
    assert "progress:DONE" in _sh(command.replace("python3 ", f"{sys.executable} "), folder)
    lines = [line for each in folder.glob("counts*") for line in each.read_text().splitlines()]
    return sum(int(line.rpartition(": ")[2]) for line in lines)


def _sh(command: str, folder: Path) -> str:
    done = subprocess.run(
        ["bash", "-e", "-c", command],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # where Spark sends what its workers print
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


def test_the_first_command_of_readme_runs_from_the_wheel_alone(from_wheel: Path) -> None:
    python = from_wheel / "beam-spark" / "bin" / "python"
    _sh(f"{python} -m pip check", from_wheel)
    where = f"{python} -c 'import beam_spark_runner as b; print(b.__file__)'"
    assert "site-packages" in _sh(where, from_wheel)


def test_the_wheel_has_each_module(wheel: Path, source: Path) -> None:
    command = ["git", "ls-files", "beam_spark_runner/*.py"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    modules = set(listed.stdout.split())
    assert len(modules) > 500
    assert modules <= set(zipfile.ZipFile(wheel).namelist())
    assert all((source / name).exists() for name in modules)


def test_data_frames_run_with_the_pandas_that_pip_chooses(from_wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "frames.py").write_text(FRAMES)
    python = from_wheel / "beam-spark" / "bin" / "python"
    here = "--runner=SparkPortableRunner --spark_master_url=local[2]"
    assert {"a 4", "b 2"} <= {*_sh(f"{python} frames.py {here}", tmp_path).splitlines()}


@pytest.fixture
def commands(tmp_path: Path) -> tuple[str, list[str]]:
    """README's commands of a stream: the program's, and those that create files."""
    made, program = typed_in(START.replace("/tmp/", f"{tmp_path}/"))
    first, kill, second = typed_in(KILL.replace("/tmp/", f"{tmp_path}/"))
    assert kill == "pkill -9 -f word_counts.py"  # here, by the id of the process
    _sh(made, tmp_path)
    return program, [first.partition(";")[0], second]


def test_readmes_stream_continues_after_it_was_killed(
    from_wheel: Path, tmp_path: Path, commands: tuple[str, list[str]]
) -> None:
    program, (first, second) = commands
    words = shlex.split(program)
    words[0] = str(from_wheel / "beam-spark" / "bin" / "python")
    log = tmp_path / "log"
    with _running(words, from_wheel, log) as running:
        _sh(first, tmp_path)
        _wait_until(lambda: _epochs(tmp_path), running, log)
        running.kill()
    before = _epochs(tmp_path)
    with _running(words, from_wheel, log) as running:
        _sh(second, tmp_path)
        expected = Counter(["to", "be", "or", "not", "to", "be", "that", "is", "the", "question"])
        _wait_until(lambda: _counts(tmp_path / "counts") == expected, running, log)
        assert min(_epochs(tmp_path)) > max(before)
        running.send_signal(signal.SIGINT)
        running.wait(120)


def _epochs(folder: Path) -> list[int]:
    """Return the numbers of the epochs whose manifests are in README's checkpoint folder."""
    names = [path.name for path in (folder / "word-counts").rglob("*.manifest")]
    return [epoch for name in names if (epoch := epoch_in(name, "main")) is not None]


@contextmanager
def _running(words: list[str], folder: Path, log: Path) -> "Iterator[subprocess.Popen[bytes]]":
    with log.open("ab") as output:
        running = subprocess.Popen(
            words, cwd=folder, env=ENVIRONMENT, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def _wait_until(holds: Callable[[], object], running: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 300
    while not holds():
        assert running.poll() is None, log.read_text()[-5000:]
        assert time.monotonic() < deadline, log.read_text()[-5000:]
        time.sleep(0.2)


def _counts(folder: Path) -> Counter[str]:
    """Return the counts of all windows, added up."""
    lines = [
        line.split()
        for each in folder.glob("*.txt")
        if not each.name.startswith(".")
        for line in each.read_text().splitlines()
    ]
    counts: Counter[str] = Counter()
    for word, count in lines:
        counts[word] += int(count)
    return counts


def test_the_first_command_of_readme_runs_from_the_source(source: Path, tmp_path: Path) -> None:
    """Unchanged, in the unpacked source distribution."""
    assert _install_and_count(source, tmp_path, "pip install --quiet .") > 1000


@pytest.fixture(scope="module")
def with_extras(from_wheel: Path, wheel: Path) -> Path:
    """The interpreter of README's environment, after all extras that are not compiled."""
    python = from_wheel / "beam-spark" / "bin" / "python"
    _sh(f"{python} -m pip install --quiet '{wheel}[{','.join(EXTRAS)}]'", from_wheel)
    return python


@pytest.mark.parametrize("extra", EXTRAS)
def test_extras_bring_what_they_are_for(with_extras: Path, extra: str, tmp_path: Path) -> None:
    _sh(f"{with_extras} -c 'import {EXTRAS[extra]}'", tmp_path)


def test_licences_of_all_dependencies_are_known_and_permitted(with_extras: Path) -> None:
    licences = licences_of(with_extras, TOOLS)
    assert len(licences) > 30
    assert not refused(licences)


def test_a_bill_of_materials_has_all_of_them(with_extras: Path, tmp_path: Path) -> None:
    bill = tmp_path / "sbom.json"
    command = f"{TOOLS}/cyclonedx-py environment --output-file {bill} {with_extras}"
    _sh(command, tmp_path)
    listed = {each["name"].lower() for each in json.loads(bill.read_text())["components"]}
    assert {name.lower() for name in licences_of(with_extras, TOOLS)} <= listed
