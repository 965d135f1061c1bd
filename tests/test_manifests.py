"""The manifests of Kubernetes are valid, current, and start what this package has.

``make kubernetes-test`` installs them. This needs neither Helm nor a cluster.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml  # type: ignore[import-untyped]
from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner.options.config import RunnerConfig
from beam_spark_runner.options.server_options import parse_server_options
from integration.kubernetes.manifests import FOLDER, ROOT, VALUES, header

CHART = ROOT / "deploy" / "helm" / "beam-spark-runner"
MADE = {name: (FOLDER / f"{name}.yaml").read_text() for name in VALUES}
OBJECTS: Mapping[str, Mapping[str, Any]] = {
    f"{name}-{each['kind']}-{each['metadata']['name']}": each
    for name, text in MADE.items()
    for each in yaml.safe_load_all(text)
}
VERSION = "1.34"
OF_OTHERS = {"ServiceMonitor"}
"""Kinds that Kubernetes itself does not have."""


def pods() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield all pods: those of Deployments, and the templates of executors."""
    for name, each in OBJECTS.items():
        if each["kind"] == "Deployment":
            yield name, each["spec"]["template"]
        if each["kind"] == "ConfigMap":
            yield name, yaml.safe_load(each["data"]["executor.yaml"])


PODS = dict(pods())


def options(name: str) -> list[str]:
    """Return the arguments of the driver of a manifest."""
    (template,) = [
        each["spec"]["template"]
        for each in yaml.safe_load_all(MADE[name])
        if each["kind"] == "Deployment"
    ]
    return list(template["spec"]["containers"][0]["args"])


@pytest.mark.parametrize("name", VALUES)
def test_they_are_made_of_this_chart(name: str) -> None:
    assert MADE[name].startswith(header(name)), "make kubernetes-manifests"


@pytest.mark.parametrize("each", OBJECTS.values(), ids=OBJECTS)
def test_kubernetes_knows_each_field(each: Mapping[str, Any]) -> None:
    if each["kind"] not in OF_OTHERS:
        kubernetes_validate.validate(each, VERSION, strict=True)


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_executors_and_drivers_are_valid_pods(pod: Mapping[str, Any]) -> None:
    whole = {"apiVersion": "v1", "kind": "Pod", **pod}
    # Spark adds the image.
    for container in whole["spec"]["containers"]:
        container.setdefault("image", "added-by-spark")
    kubernetes_validate.validate(whole, VERSION, strict=True)


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_nothing_is_root_or_writes_to_the_root_file_system(pod: Mapping[str, Any]) -> None:
    spec = pod["spec"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        allowed = container["securityContext"]
        assert allowed["readOnlyRootFilesystem"]
        assert not allowed["allowPrivilegeEscalation"]
        assert allowed["capabilities"] == {"drop": ["ALL"]}


def test_drivers_may_only_change_pods() -> None:
    roles = [each for each in OBJECTS.values() if each["kind"] == "Role"]
    assert roles
    for role in roles:
        assert [rule["resources"] for rule in role["rules"]] == [["pods"]]


def test_the_job_server_has_each_option() -> None:
    program, *arguments = options("job-server")
    assert program == "beam-spark-job-server"
    conf = [each for each in arguments if not each.startswith(("--tls_", "--client_token"))]
    parse_server_options([*conf, "--insecure"])
    files = {each for each in arguments if each not in conf}
    assert files == {
        "--tls_cert=/etc/beam-tls/tls.crt",
        "--tls_key=/etc/beam-tls/tls.key",
        "--client_token_file=/etc/beam-token/token",
    }


def test_the_runner_has_each_option() -> None:
    arguments = options("pipeline")
    config = RunnerConfig.from_options(PipelineOptions(arguments[2:]))
    assert config.spark_master_url is not None
    assert config.spark_master_url.startswith("k8s://")


def test_values_are_those_of_the_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    jsonschema.validate(values, schema)
    assert set(values) == set(schema["properties"]) - {"global"}


def test_the_application_of_the_operator_restricts_its_pods() -> None:
    (application,) = yaml.safe_load_all(Path(FOLDER / "spark-application.yaml").read_text())
    for role in ("driver", "executor"):
        pod = application["spec"][role]
        assert pod["podSecurityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["readOnlyRootFilesystem"]
    RunnerConfig.from_options(PipelineOptions(application["spec"]["arguments"]))
