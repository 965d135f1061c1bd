"""Profiles of user code, by Beam's own options."""

import logging
import marshal
import sys
import types
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.utils.profiler import Profile

from tests.harvest import LOOPBACK, REUSED_PROCESS, harvest


def of_the_user(element: int) -> int:
    return element + 1


def build(p: beam.Pipeline) -> dict[str, Any]:
    return {"all": p | beam.Create([1, 2]) | beam.Reshuffle() | beam.Map(of_the_user)}


def profiled_functions(folder: Path) -> set[str]:
    """Return the names of the functions in all profiles of CPU time."""
    profiles = [marshal.loads(path.read_bytes()) for path in folder.glob("cpu_profile/*")]
    return {name for profile in profiles for _, _, name in profile}


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param((), id="embedded"),
        pytest.param(LOOPBACK, id="loopback", marks=pytest.mark.grpc),
        pytest.param(REUSED_PROCESS, id="process", marks=[pytest.mark.grpc, pytest.mark.rare]),
    ],
)
def test_cpu_time_is_profiled(spark_session: Any, tmp_path: Path, flags: tuple[str, ...]) -> None:
    location = f"--profile_location={tmp_path}"
    found = harvest(spark_session, build, "--profile_cpu", location, *flags)
    assert sorted(found["all"]) == [2, 3]
    assert "of_the_user" in profiled_functions(tmp_path)


def test_no_bundle_is_chosen(spark_session: Any, tmp_path: Path) -> None:
    flags = "--profile_cpu", f"--profile_location={tmp_path}", "--profile_sample_rate=0"
    assert sorted(harvest(spark_session, build, *flags)["all"]) == [2, 3]
    assert not list(tmp_path.iterdir())


class Heap:
    """What the heap profiler of the package guppy3 offers."""

    more = "and the rest"

    def setrelheap(self) -> None:
        pass

    def heap(self) -> "Heap":
        return self

    def __str__(self) -> str:
        return "the heap"


def test_memory_is_profiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("guppy")
    module.__dict__.update(hpy=Heap, __spec__=types.SimpleNamespace())
    monkeypatch.setitem(sys.modules, "guppy", module)
    flags = "--profile_memory", f"--profile_location={tmp_path}"
    here = "--spark_master_url=in-process"
    assert sorted(harvest(None, build, here, *flags)["all"]) == [2, 3]  # type: ignore[arg-type]
    texts = {path.read_text() for path in tmp_path.glob("memory_profile/*")}
    assert texts == {"the heap\nand the rest"}


def test_a_profile_that_cannot_be_written_fails_nothing(
    spark_session: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    with caplog.at_level(logging.WARNING):
        flags = "--profile_cpu", f"--profile_location={tmp_path / 'file'}"
        assert sorted(harvest(spark_session, build, *flags)["all"]) == [2, 3]
    assert "could not be written" in caplog.text


def test_another_profiler_is_active(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In a program that is run by ``python -m cProfile``, from Python 3.12 on."""

    def refuse(_: Profile) -> None:
        raise ValueError("Another profiling tool is already active")

    monkeypatch.setattr(Profile, "__enter__", refuse)
    flags = "--profile_cpu", f"--profile_location={tmp_path}"
    here = "--spark_master_url=in-process"
    assert sorted(harvest(None, build, here, *flags)["all"]) == [2, 3]  # type: ignore[arg-type]
    assert "is not profiled: Another profiling tool is already active" in caplog.text
