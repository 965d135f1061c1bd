"""Which environments can be sent to executors."""

import json
from pathlib import Path

import pytest

from beam_spark_runner.core.errors import OptionsError
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
