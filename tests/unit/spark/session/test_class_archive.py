"""Which class archive a JVM uses, and when one is made."""

import atexit
import errno
import os
from pathlib import Path

import pytest

from beam_spark_runner import make_class_archive
from beam_spark_runner.spark.session import class_archive
from beam_spark_runner.spark.session.class_archive import flags_with_archive, remove_old


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of a Java 17, next to a Spark with one jar. Nothing is made at the exit."""
    for name in ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setattr(class_archive, "_made_at_exit", set())
    monkeypatch.setattr(atexit, "register", lambda *of: None)
    for folder in ("spark/jars", "java/bin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "spark/jars/a.jar").write_bytes(b"jar")
    (tmp_path / "java/bin/java").touch()
    (tmp_path / "java/release").write_text('JAVA_VERSION="17.0.2"\n')
    return str(tmp_path / "java/bin/java")


def wanted(folder: Path, java: str) -> Path:
    """Return the path of the archive that is made at the exit."""
    assert flags_with_archive(str(folder), java, {}) == []
    (archive,) = class_archive._made_at_exit
    return archive


def test_an_archive_is_used_once_it_is_there(tmp_path: Path, java: str) -> None:
    folder = tmp_path / "cache"
    archive = wanted(folder, java)
    for each in (archive.parent, folder):
        assert each.stat().st_mode & 0o777 == 0o700
    archive.write_bytes(b"classes")
    archive.chmod(0o600)
    os.utime(archive, (0, 0))
    flags = flags_with_archive(str(folder), java, {})
    assert flags[0] == f"-XX:SharedArchiveFile={archive}"
    assert archive.stat().st_mtime > 0


def test_an_archive_in_a_read_only_folder_is_used(
    tmp_path: Path, java: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an image of a container. (Root may write to any folder but a read-only one.)"""

    def utime(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    archive = wanted(tmp_path, java)
    archive.write_bytes(b"classes")
    archive.chmod(0o600)
    monkeypatch.setattr(os, "utime", utime)
    assert flags_with_archive(str(tmp_path), java, {})[0] == f"-XX:SharedArchiveFile={archive}"


def test_jars_whose_times_are_rounded_have_the_same_archive(tmp_path: Path, java: str) -> None:
    """As in an image of a container that was pushed and pulled."""
    jar = tmp_path / "spark/jars/a.jar"
    names = set()
    for time_ns in (1_999_999_999, 1_000_000_000):
        os.utime(jar, ns=(time_ns, time_ns))
        class_archive._made_at_exit.clear()
        names.add(wanted(tmp_path, java))
    assert len(names) == 1


def test_another_java_or_another_jar_has_another_archive(tmp_path: Path, java: str) -> None:
    folder = tmp_path / "cache"
    names = {wanted(folder, java)}
    for path, content in (
        ("spark/jars/b.jar", "new"),
        ("spark/jars/a.jar", "longer"),
        ("java/release", 'JAVA_VERSION="17.0.3"\n'),
        ("java/release", 'JAVA_VERSION="21"\n'),
    ):
        (tmp_path / path).write_text(content)
        class_archive._made_at_exit.clear()
        names.add(wanted(folder, java))
    assert len(names) == 5


@pytest.mark.parametrize("how", ["writable by others", "a link"])
def test_an_archive_that_others_can_write_is_not_used(tmp_path: Path, java: str, how: str) -> None:
    archive = wanted(tmp_path / "cache", java)
    written = tmp_path / "written" if how == "a link" else archive
    written.write_bytes(b"classes")
    if how == "a link":
        archive.symlink_to(written)
    else:
        archive.chmod(0o620)
    class_archive._made_at_exit.clear()
    assert flags_with_archive(str(tmp_path / "cache"), java, {}) == []
    assert not class_archive._made_at_exit  # it would not be replaced


@pytest.mark.parametrize(
    ("mode", "is_used"), [(0o755, True), (0o1777, True), (0o777, False), (0o775, False)], ids=oct
)
def test_an_archive_in_a_folder_that_others_can_write_is_not_used(
    tmp_path: Path, java: str, mode: int, is_used: bool
) -> None:
    """They could put another folder in its place, but not where the folder is sticky, as /tmp."""
    folder = tmp_path / "cache"
    archive = wanted(folder, java)
    archive.write_bytes(b"classes")
    archive.chmod(0o600)
    class_archive._made_at_exit.clear()
    folder.chmod(mode)
    assert bool(flags_with_archive(str(folder), java, {})) == is_used
    assert not class_archive._made_at_exit


def test_nothing_is_done_where_the_user_has_flags_of_archives(
    tmp_path: Path, java: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    option = {"spark.driver.extraJavaOptions": "-Xshare:off"}
    assert flags_with_archive(str(tmp_path / "cache"), java, option) == []
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:SharedArchiveFile=mine")
    assert flags_with_archive(str(tmp_path / "cache"), java, {}) == []
    assert not class_archive._made_at_exit
    assert not (tmp_path / "cache").exists()


def test_old_java_and_folders_that_cannot_be_made_are_passed_over(
    tmp_path: Path, java: str
) -> None:
    (tmp_path / "file").touch()
    assert flags_with_archive(str(tmp_path / "file"), java, {}) == []
    (tmp_path / "java/release").write_text('JAVA_VERSION="11.0.1"\n')
    assert flags_with_archive(str(tmp_path / "cache"), java, {}) == []
    (tmp_path / "java/release").unlink()
    assert flags_with_archive(str(tmp_path / "cache"), java, {}) == []
    assert not class_archive._made_at_exit


def test_two_archives_are_kept(tmp_path: Path) -> None:
    for age in range(4):
        archive = tmp_path / f"{age}.jsa"
        archive.touch()
        os.utime(archive, (1000 - age, 1000 - age))
    remove_old(tmp_path.glob("*.jsa"))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["0.jsa", "1.jsa"]


def test_an_archive_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(file: Path) -> None:
        file.write_bytes(b"half")
        raise OSError("the disk is full")

    archive = tmp_path / "a.jsa"
    monkeypatch.setattr(make_class_archive, "_write", fails)
    with pytest.raises(OSError, match="full"):
        make_class_archive.make(archive)
    assert not [*tmp_path.iterdir()]
    monkeypatch.setattr(make_class_archive, "_write", lambda file: file.write_bytes(b"whole"))
    make_class_archive.make(archive)
    assert [each.name for each in tmp_path.iterdir()] == ["a.jsa"]
    assert archive.stat().st_mode & 0o777 == 0o600
