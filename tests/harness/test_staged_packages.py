"""Environments on an executor: made once, whole or not at all, whoever asks and whoever dies."""

import importlib.metadata
import multiprocessing
import os
import signal
import subprocess
import tarfile
import time
from collections.abc import Callable
from multiprocessing.context import SpawnProcess
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from apache_beam.internal import cloudpickle_pickler

from beam_spark_runner.core.errors import EnvironmentStartError, InvariantError
from beam_spark_runner.harness.environments import installed_packages as module
from beam_spark_runner.harness.environments import leases
from beam_spark_runner.harness.environments.installed_packages import StagedFiles, stage_files
from beam_spark_runner.job.prepare.packages import identify_packages
from beam_spark_runner.portable.artifacts import Artifact, digest_of, to_proto
from tests.unit.portable.steps import steps_in
from tests.user_packages import sdist, wheel

pytestmark = pytest.mark.timeout(180)

NAME = "packed_for_a_test"
# A forked child of a process that has had gRPC servers may crash.
SPAWN = multiprocessing.get_context("spawn")


class TarFile:
    """An archive in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self) -> BinaryIO:
        return self._path.open("rb")


@pytest.fixture(autouse=True)
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An executor's folder, and no package index."""
    folder = tmp_path / "executor"
    folder.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{folder},/elsewhere")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return folder


def packed(folder: Path, *files: Path) -> tuple[tuple[Artifact, ...], dict[str, TarFile]]:
    """Do what the driver does."""
    from apache_beam.portability.api import beam_runner_api_pb2

    order = folder / "extra_packages.txt"
    order.write_text("".join(f"{file.name}\n" for file in files))
    environment = beam_runner_api_pb2.Environment()
    for file in (*files, order):
        environment.dependencies.append(
            to_proto(Artifact(name=file.name, path=str(file), sha256=""))
        )
    _, packages = identify_packages(steps_in(only=environment))
    ((digest, artifacts),) = packages.items()
    tar = folder / "packed.tar"
    with tarfile.open(tar, "w") as archive:
        for each in artifacts:
            archive.add(each.path, each.name)
    return artifacts, {digest: TarFile(tar)}


def answer(staged: StagedFiles, code: str) -> str:
    variables = {**os.environ, **staged.variables()}
    variables.pop("PYTHONPATH", None)
    command = [str(staged.python), "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=variables).stdout


def test_it_has_the_package_and_all_that_is_installed_here(tmp_path: Path) -> None:
    files = packed(tmp_path, wheel(tmp_path, NAME, "1.0", "VERSION = '1.0'\n"))
    staged = stage_files(*files, installs=True)
    code = f"import {NAME}, sys, beam_spark_runner, pyarrow; print({NAME}.VERSION, sys.prefix)"
    version, prefix = answer(staged, code).split()
    assert version == "1.0"
    assert prefix == staged.variables()["VIRTUAL_ENV"]
    assert {each.name for each in staged.artifacts} == {
        "extra_packages.txt",
        f"{NAME}-1.0-py3-none-any.whl",
    }
    assert all(Path(each.path).is_file() for each in staged.artifacts)


def test_a_package_replaces_what_is_installed(tmp_path: Path) -> None:
    """Also one of the same version."""
    file = wheel(tmp_path, "six", importlib.metadata.version("six"), "MINE = True\n")
    staged = stage_files(*packed(tmp_path, file), installs=True)
    assert answer(staged, "import six; print(six.MINE)") == "True\n"


def test_without_packages_nothing_is_installed(tmp_path: Path, executor: Path) -> None:
    artifacts, archives = packed(tmp_path, wheel(tmp_path, NAME, "1.0", ""))
    staged = stage_files(artifacts, archives, installs=False)
    assert staged.python is None
    assert not list(executor.rglob("venv-*"))


def test_processes_that_ask_at_once_share_one(tmp_path: Path, executor: Path) -> None:
    built = tmp_path / "built"
    setup = (
        f"open({str(built)!r}, 'a').write('x') if 'bdist_wheel' in __import__('sys').argv else 0\n"
        f"from setuptools import setup; setup(name={NAME!r}, version='1', py_modules=[{NAME!r}])\n"
    )
    files = packed(tmp_path, sdist(tmp_path, NAME, "1", "", setup=setup))
    found = in_processes(4, lambda: str(stage_files(*files, installs=True).python))
    assert len(set(found)) == 1
    assert Path(found[0]).exists()
    assert built.read_text() == "x"
    assert len([path for path in executor.rglob("venv-*") if path.is_symlink()]) == 1


def test_who_waits_for_one_that_fails_does_not_try_again(tmp_path: Path) -> None:
    tried = tmp_path / "tried"
    setup = f"open({str(tried)!r}, 'a').write('x')\nraise SystemExit('broken')\n"
    files = packed(tmp_path, sdist(tmp_path, NAME, "1", "", setup=setup))
    found = in_processes(3, lambda: failure(lambda: stage_files(*files, installs=True)))
    assert len(set(found)) == 1
    assert "broken" in found[0]
    tries = len(tried.read_text())
    failure(lambda: stage_files(*files, installs=True))
    assert len(tried.read_text()) == 2 * tries, "who comes later does"


def failure(call: Callable[[], Any]) -> str:
    with pytest.raises(EnvironmentStartError) as raised:
        call()
    return str(raised.value)


def answer_at_once(pickled: bytes, barrier: Barrier, answers: "SimpleQueue[str]") -> None:
    """Call a pickled function when the other processes are as far."""
    barrier.wait()
    answers.put(cloudpickle_pickler.loads(pickled)())


def in_process(call: Callable[..., Any], *arguments: object) -> SpawnProcess:
    """Start a process that calls a function of a test."""
    process = SPAWN.Process(
        target=call_pickled, args=(cloudpickle_pickler.dumps((call, arguments)),)
    )
    process.start()
    return process


def call_pickled(pickled: bytes) -> None:
    """Call a pickled function."""
    call, arguments = cloudpickle_pickler.loads(pickled)
    call(*arguments)


def in_processes(number: int, call: Callable[[], str]) -> list[str]:
    """Call in so many processes at once."""
    barrier, answers = SPAWN.Barrier(number), SPAWN.SimpleQueue()
    pickled = cloudpickle_pickler.dumps(call)
    children = [
        SPAWN.Process(target=answer_at_once, args=(pickled, barrier, answers))
        for _ in range(number)
    ]
    for each in children:
        each.start()
    for each in children:
        each.join()
    assert [each.exitcode for each in children] == [0] * number
    return [answers.get() for _ in children]


def test_what_is_half_made_is_not_used(tmp_path: Path) -> None:
    place = tmp_path / "place"

    def die(folder: Path) -> None:
        (folder / "half").touch()
        os.kill(os.getpid(), signal.SIGKILL)

    child = in_process(module._once, place, die)
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert not place.exists()
    assert len(list(tmp_path.glob("place-*"))) == 1
    made = module._once(place, lambda folder: (folder / "whole").touch())
    assert [path.name for path in place.iterdir()] == ["whole"]
    assert list(tmp_path.glob("place-*")) == [made], "what was left is gone"


def test_nobody_sees_it_before_it_is_whole(tmp_path: Path) -> None:
    place = tmp_path / "place"

    def make_slowly(folder: Path) -> None:
        (folder / "first").touch()
        time.sleep(0.5)
        (folder / "last").touch()

    child = in_process(module._once, place, make_slowly)
    while not place.exists():
        assert child.is_alive() or place.exists()
    assert sorted(path.name for path in place.iterdir()) == ["first", "last"]
    child.join()


def test_files_that_are_not_what_was_staged(tmp_path: Path) -> None:
    artifacts, archives = packed(tmp_path, wheel(tmp_path, NAME, "1.0", ""))
    first, *others = artifacts
    changed = (Artifact(name=first.name, path="", sha256="0" * 64), *others)
    with pytest.raises(InvariantError, match=rf"{first.name} does not have the content"):
        stage_files(changed, {digest_of(changed): next(iter(archives.values()))}, installs=True)


def contents_of(executor: Path) -> set[str]:
    """Return what is staged, as the names of its files."""
    return {file.name for file in executor.glob("beam-packages/files-*/staged/*.txt")}


def test_what_nobody_has_used_for_long_is_removed(
    tmp_path: Path, executor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def staged(name: str) -> StagedFiles:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.txt").write_text(name)
        return stage_files(*packed(folder, folder / f"{name}.txt"), installs=False)

    others = {"extra_packages.txt"}
    old, used = staged("old"), staged("used")
    old.release()
    old.release()
    staged("recent").release()
    assert contents_of(executor) == {"old.txt", "used.txt", "recent.txt", *others}
    monkeypatch.setattr(leases, "KEPT_S", -1.0)
    new = staged("new")
    assert contents_of(executor) == {"used.txt", "new.txt", *others}
    assert used.folder.exists()
    assert not old.folder.exists()
    again = staged("old")
    assert (again.folder / "staged" / "old.txt").read_text() == "old"
    used.release()
    last = staged("last")
    assert contents_of(executor) == {"new.txt", "old.txt", "last.txt", *others}
    for each in (new, again, last):
        each.release()


def test_the_folder_of_a_process_that_was_killed_is_removed(
    tmp_path: Path, executor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("a")
    files = packed(tmp_path, tmp_path / "a.txt")

    def stage_and_die() -> None:
        stage_files(*files, installs=False)
        os.kill(os.getpid(), signal.SIGKILL)

    process = in_process(stage_and_die)
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert "a.txt" in contents_of(executor)
    leases.remove_unused(executor / "beam-packages")
    assert "a.txt" in contents_of(executor)  # the hour is not over
    monkeypatch.setattr(leases, "KEPT_S", -1.0)
    leases.remove_unused(executor / "beam-packages")
    assert contents_of(executor) == set()
    assert not [each for each in (executor / "beam-packages").iterdir() if each.is_dir()]
