"""``spark-submit`` of Beam's own word count, as it lies in the wheel."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import apache_beam.examples.wordcount
import pyspark
import pytest

from integration.cluster import PACKAGE_ROOT, Cluster

pytestmark = pytest.mark.cluster
_TEXT = "to be or not to be\nthat is the question\n" * 100

_PROGRAM = """
import sys
from apache_beam.examples import wordcount
from pyspark import SparkContext

contexts = []
start = SparkContext._do_init

def starts(self, *args, **kwargs):
    start(self, *args, **kwargs)
    contexts.append(self.getConf())

SparkContext._do_init = starts
wordcount.run(sys.argv[1:])
(conf,) = contexts
assert conf.get("spark.master").startswith("spark://"), conf.get("spark.master")
# What the runner sets where all workers are on this machine: here it would be wrong.
assert not conf.contains("spark.python.daemon.module")
"""


def submit(master: str, tmp_path: Path, *, conf: dict[str, str], env: dict[str, str]) -> None:
    home = Path(pyspark.__file__).parent
    confs = [f"--conf={key}={value}" for key, value in conf.items()]
    command = [str(home / "bin" / "spark-submit"), "--master", master, *confs]
    count_words([*command, apache_beam.examples.wordcount.__file__], tmp_path, env)


def count_words(command: list[str], tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "in.txt").write_text(_TEXT)
    done = subprocess.run(
        [
            *command,
            *("--runner=SparkPortableRunner", f"--input={tmp_path}/in.txt"),
            f"--output={tmp_path}/out",
        ],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            # As installed: the name of the runner is known to programs that never import us.
            "PYTHONPATH": f"{PACKAGE_ROOT}{os.pathsep}{tmp_path}",
            **env,
        },
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    counts: Counter[str] = Counter()
    for path in tmp_path.glob("out-*"):
        for line in path.read_text().splitlines():
            word, _, count = line.partition(": ")
            counts[word] += int(count)
    assert counts == Counter(_TEXT.split())


@pytest.fixture
def registered(tmp_path: Path) -> None:
    """What an install leaves in site-packages, for a checkout that is only on the path."""
    (tmp_path / "sitecustomize.py").write_text("import beam_spark_runner\n")


@pytest.mark.usefixtures("registered")
def test_local(tmp_path: Path) -> None:
    submit("local[2]", tmp_path, conf={"spark.ui.enabled": "false"}, env={})


@pytest.mark.usefixtures("registered")
def test_standalone(cluster: Cluster, tmp_path: Path) -> None:
    submit(cluster.master_url, tmp_path, conf=cluster.conf, env=cluster.environment)


@pytest.mark.usefixtures("registered")
def test_a_master_in_spark_s_configuration(cluster: Cluster, tmp_path: Path) -> None:
    """The program is started by Python, and names no master."""
    folder = tmp_path / "conf"
    folder.mkdir()
    properties = {"spark.master": cluster.master_url, **cluster.conf}
    lines = [f"{key} {value}\n" for key, value in properties.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines))
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    env = {**cluster.environment, "SPARK_CONF_DIR": str(folder)}
    count_words([sys.executable, str(program)], tmp_path, env)
