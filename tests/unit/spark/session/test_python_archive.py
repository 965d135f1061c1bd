"""Which environments can be sent to executors."""

import importlib.metadata
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.spark.session import python_archive
from beam_spark_runner.spark.session.python_archive import pack_environment


def install(folder: Path, name: str, **files: str) -> None:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    for file, text in files.items():
        (info / file.replace("_json", ".json")).write_text(text)


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        pytest.param(
            {
                "RECORD": "",
                "direct_url_json": json.dumps(
                    {"url": "file:///my/project", "dir_info": {"editable": True}}
                ),
            },
            "editable, from file:///my/project",
            id="in development",
        ),
        pytest.param({}, "without a list of its files", id="put there by hand"),
    ],
)
def test_what_cannot_be_sent_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], problem: str
) -> None:
    install(tmp_path, "of_mine", **files)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(OptionsError, match=r"--executor_environment: .*of-mine") as raised:
        pack_environment(["/usr/bin/python3"], tmp_path / "cache")
    assert f"of-mine ({problem})" in str(raised.value)
    assert not (tmp_path / "cache").exists()


@pytest.fixture
def one_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing but a small package is installed, so that packing is quick."""
    folder = tmp_path / "packages"
    folder.mkdir()
    install(folder, "small", RECORD="small.py,,\n")
    (folder / "small.py").write_text("VALUE = 1\n")
    found = list(importlib.metadata.distributions(path=[str(folder)]))
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: found)
    python_archive._temporary_folder.cache_clear()
    yield
    python_archive._temporary_folder.cache_clear()


@pytest.fixture(params=["a file", "not writable", "no home"])
def no_cache(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container's user has no folder of archives, whether root runs this or not."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    home = tmp_path / "home"
    if request.param == "no home":
        monkeypatch.setattr(Path, "expanduser", no_home)
    elif request.param == "a file":
        home.touch()
    else:
        (home / ".cache" / "beam-spark-runner").mkdir(parents=True)
        access = os.access
        monkeypatch.setattr(
            os, "access", lambda path, mode: home not in Path(path).parents and access(path, mode)
        )
    monkeypatch.setenv("HOME", str(home))


def no_home(path: Path) -> Path:
    raise RuntimeError("Could not determine home directory.")


@pytest.mark.usefixtures("one_package", "no_cache")
def test_without_a_cache_folder_archives_are_in_the_folder_of_the_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "appcache").mkdir()
    monkeypatch.setenv("CONTAINER_ID", "container_1")
    monkeypatch.setenv("LOCAL_DIRS", f"{tmp_path}/missing,{tmp_path}/appcache")
    assert pack_environment(["/usr/bin/python3"]).parent == tmp_path / "appcache"


@pytest.mark.usefixtures("one_package", "no_cache")
def test_without_a_cache_folder_and_outside_of_containers_archives_are_temporary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CONTAINER_ID", raising=False)
    path = pack_environment(["/usr/bin/python3"])
    assert path.is_relative_to(tmp_path / f"beam-spark-{os.geteuid()}")
    assert pack_environment(["/usr/bin/python3"]) == path


def test_temporary_archives_end_with_the_program(tmp_path: Path) -> None:
    program = """
        import os
        from beam_spark_runner.spark.session.python_archive import _temporary_folder
        folder = _temporary_folder().path
        if (child := os.fork()) == 0:
            raise SystemExit
        os.waitpid(child, 0)
        print(folder.is_dir())
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
    (root,) = tmp_path.glob("beam-spark-*")
    assert not list(root.iterdir())


@pytest.mark.usefixtures("one_package")
def test_an_archive_that_cannot_be_written_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OptionsError, match=r"cannot be packed: .*XDG_CACHE_HOME may name"):
        pack_environment(["/usr/bin/python3"], tmp_path / "file" / "cache")


@pytest.mark.usefixtures("one_package")
def test_the_interpreter_of_an_archive_of_the_user_is_found_from_each_container(
    tmp_path: Path,
) -> None:
    archive = pack_environment(["./py/bin/python"], tmp_path / "cache")
    for container in "container_2", "container_3":
        folder = tmp_path / container
        (folder / "py" / "bin").mkdir(parents=True)
        (folder / "py" / "bin" / "python").symlink_to(sys.executable)
        (folder / "env").mkdir()
        subprocess.run(["tar", "xzf", archive, "-C", folder / "env"], check=True)
        command = ["./env/bin/python", "-c", "import small, sys; print(small.VALUE, sys.argv)", "a"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.stdout == "1 ['-c', 'a']\n", done.stderr
