"""What the image of ``docker/Dockerfile`` for Kubernetes does with what Spark writes into pods."""

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "docker" / "entrypoint.sh"
BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
OF_EXECUTOR = {
    **{f"SPARK_JAVA_OPT_{number}": f"-Done.{number}=with a space" for number in range(11)},
    "SPARK_EXECUTOR_MEMORY": "640m",
    "SPARK_HOME": "/opt/spark",
    "SPARK_DRIVER_URL": "spark://driver",
    "SPARK_EXECUTOR_ID": "7",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "beam-7",
}


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with programs that print their arguments, one in a line."""
    for name in ("java", "spark-submit"):
        (tmp_path / name).write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        (tmp_path / name).chmod(0o755)
    return tmp_path


def started(programs: Path, *arguments: str, **variables: str) -> list[str]:
    environment = {"PATH": f"{programs}:/usr/bin:/bin", **variables}
    command = ["bash", str(SCRIPT), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_an_executor_gets_all_options_in_their_order(programs: Path) -> None:
    said = started(programs, "executor", **OF_EXECUTOR)
    assert said[:11] == [f"-Done.{number}=with a space" for number in range(11)]
    assert said[11:15] == ["-Xms640m", "-Xmx640m", "-cp", "/opt/spark/jars/*"]
    assert said[15] == BACKEND
    options = dict(zip(said[16::2], said[17::2], strict=True))
    assert options["--hostname"] == "10.0.0.7"
    assert options["--podName"] == "beam-7"


def test_a_class_path_of_the_user_comes_first(programs: Path) -> None:
    said = started(programs, "executor", SPARK_CLASSPATH="/extra/*", **OF_EXECUTOR)
    assert "/extra/*:/opt/spark/jars/*" in said


def test_a_driver_in_cluster_mode_is_submitted(programs: Path) -> None:
    said = started(
        programs, "driver", "--class", "Main", "a b", SPARK_DRIVER_BIND_ADDRESS="10.0.0.1"
    )
    assert said == [
        *("--conf", "spark.driver.bindAddress=10.0.0.1", "--deploy-mode", "client"),
        *("--class", "Main", "a b"),
    ]


def test_other_commands_are_run(programs: Path) -> None:
    assert started(programs, "echo", "a  b") == ["a  b"]
