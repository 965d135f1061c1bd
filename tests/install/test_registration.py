"""The bare runner name, in programs that never import us, after both kinds of install."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
OURS = ("beam_spark_runner.pth", "_beam_spark_runner_import_hook.py")


def source_in(folder: Path) -> Path:
    """Copy the source into a folder: setuptools builds inside it, where others may be at work."""
    source = folder / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "build", "tests"))
    return source


class Installed:
    """A virtual environment with this package, and with everything else of the one we run in."""

    def __init__(self, folder: Path, kind: str) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self.python = folder / "bin" / "python"
        self.site_packages = Path(
            sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)})
        )
        # Only the path, not the other environment's .pth files: they may hold our hook.
        (self.site_packages / "other.pth").write_text(sysconfig.get_path("purelib") + "\n")
        self.source = source_in(folder)
        self.pip("install", "--no-deps", "--no-build-isolation", *kind.split(), str(self.source))

    def pip(self, *arguments: str) -> None:
        # Of this process: the environment has none of its own, which would cost seconds.
        command = [sys.executable, "-m", "pip", "--python", str(self.python), *arguments]
        subprocess.run(command, check=True, capture_output=True, text=True)

    def run(self, code: str, *options: str) -> str:
        # Not in the checkout: its package must be found by the install.
        done = subprocess.run(
            [self.python, *options, "-c", code],
            cwd=self.site_packages,
            env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "beam_spark" not in done.stderr  # Beam itself logs a word or two when imported
        assert "unparseable" not in done.stderr
        return done.stdout.strip()


@pytest.fixture(
    scope="module",
    params=["", pytest.param("--editable", marks=pytest.mark.rare)],
    ids=["plain", "editable"],
)
def installed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    return Installed(tmp_path_factory.mktemp("venv"), request.param)


def test_beam_creates_the_runner_by_name(installed: Installed) -> None:
    names = ("SparkPortableRunner", "sparkportable", "SPARKPORTABLERUNNER", "sparkPortableRunner")
    code = f"""
from apache_beam.runners.runner import create_runner
print({{type(create_runner(name)).__name__ for name in {names!r}}})"""
    assert installed.run(code) == "{'SparkPortableRunner'}"


def test_beam_parses_our_options(installed: Installed) -> None:
    code = """
from apache_beam.options.pipeline_options import PipelineOptions
print(PipelineOptions(["--spark_conf=spark.a=1"]).get_all_options(drop_default=True))"""
    assert installed.run(code) == "{'spark_conf': ['spark.a=1']}"


def test_nothing_of_ours_is_left_behind_when_beam_is_imported(installed: Installed) -> None:
    code = """
import sys, apache_beam.options.pipeline_options as module
print([f for f in sys.meta_path if "beam_spark" in getattr(f, "__module__", "")])
print(type(module.__loader__).__name__, "exec_module" in vars(module.__loader__))
print([m for m in sys.modules if m.split(".")[0] == "pyspark"])"""
    assert installed.run(code).splitlines() == ["[]", "SourceFileLoader False", "[]"]


def test_start_imports_one_small_module(installed: Installed) -> None:
    code = "import sys; print([m for m in sys.modules if 'beam' in m])"
    assert installed.run(code) == "['_beam_spark_runner_import_hook']"
    without = set(installed.run("import sys; print(*sys.modules)", "-S").split())
    added = set(installed.run("import sys; print(*sys.modules)").split()) - without
    assert added - {"site", "_beam_spark_runner_import_hook"} <= _modules_of_site()


def _modules_of_site() -> set[str]:
    """What ``site`` itself loads, with no package of anybody's."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", "import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


@pytest.fixture
def broken(installed: Installed) -> Iterator[Installed]:
    """An environment where somebody deleted the hook but not the ``.pth`` file."""
    hook = installed.site_packages / OURS[1]
    text = hook.read_text()
    hook.unlink()
    yield installed
    hook.write_text(text)


def test_python_starts_silently_without_the_hook(broken: Installed) -> None:
    assert broken.run("print('started')") == "started"


def test_beam_works_with_a_hook_but_no_package(installed: Installed) -> None:
    code = """
import sys
sys.modules["beam_spark_runner"] = None  # as if it were gone
from apache_beam.runners.runner import create_runner
print(type(create_runner("DirectRunner")).__name__)
try:
    create_runner("SparkPortableRunner")
except ImportError:
    print("the error says what is missing")"""
    assert installed.run(code).splitlines()[1] == "the error says what is missing"


@pytest.mark.rare
def test_uninstalling_takes_everything_away(tmp_path: Path) -> None:
    installed = Installed(tmp_path, "")
    assert all((installed.site_packages / name).exists() for name in OURS)
    installed.pip("uninstall", "--yes", "beam-spark-runner")
    assert not any((installed.site_packages / name).exists() for name in OURS)
