"""The commands of the guides, as they are written.

`helm install` renders, `kubectl create` and `kubectl apply -k` make their objects without a server,
`sluice` speaks with a real control API that the chart's settings started, and other commands of
kubectl are parsed by the real one, which then finds no server.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from control_api.tenants.bootstrap import fresh_keys
from deploy.command import COMMANDS
from tests import servers
from tests.deploy.helm.chart import DEV, ROOT, find, rendered, template
from tests.deploy.helm.container import Container
from tests.deploy.helm.test_containers import ACCOUNT, AUTHORITY, pod, ready, secrets_of
from tests.support.documents import commands

GUIDES = {
    ROOT / "deploy" / "README.md": (
        "cluster", "install", "agent", "demo", "outage", "production", "upgrade",
        "rotate in a cluster",
    ),
    ROOT / "deploy" / "kustomize" / "README.md": ("kustomize", "render"),
    ROOT / "deploy/kubernetes/admission/README.md": ("keys in a Secret", "inject"),
}  # fmt: skip
DOCKERFILE = ROOT / "deploy" / "images" / "Dockerfile"
# A program and its command, wherever a shell takes one.
COMMAND = re.compile(
    r"(?:^|[|&;({] *)(kubectl|helm|kind|docker|sluice)(?: -n \S+)* ([a-z-]+)", re.MULTILINE
).findall
KNOWN = {
    "kubectl": {"annotate", "apply", "create", "delete", "exec", "get", "label", "logs", "patch"}
    | {"port-forward", "rollout", "run", "scale", "wait"},
    "helm": {"get", "install", "rollback", "template", "test", "upgrade"},
    "kind": {"create", "load"},
    "docker": {"build", "inspect", "pull"},
    "sluice": COMMANDS.keys(),
}
# Commands that only a cluster can answer: the real kubectl parses them, and finds no server.
KUBECTL = r"""#!/usr/bin/env bash
set -euo pipefail
real() { "$KUBECTL" --server=http://127.0.0.1:9 --request-timeout=1s "$@"; }
words=("$@")
[ "$1" = -n ] && shift 2
case "$1" in
  create)
    "$KUBECTL" "${words[@]}" --dry-run=client --output=yaml ;;
  apply)
    case "$2" in
      -k) "$KUBECTL" kustomize "$3" ;;
      -f) [ "$3" = - ] && tee applied.yaml | grep -E "name: sluice-(proxy|keys)" ;;
      *) exit 3 ;;
    esac ;;
  get)
    if [ "$2 $3" = "configmap sluice-injection" ]; then cat sluice-injection.yaml
    elif [[ "$2 $3 ${5:-}" == "secret sluice-keys jsonpath="* ]]; then
      name=${5#"jsonpath={.data."}; base64 -w0 "secret/${name%"\\.key}"}.key"
    elif [ "${*: -1}" = --output=json ]; then echo '{"kind": "List", "items": []}'
    else real "${words[@]}" > /dev/null 2>&1 || echo "parsed: ${words[*]}"; fi ;;
  exec)
    while [ "$1" != -- ]; do shift; done
    shift
    case "$1" in sluice) "$@" ;; curl) echo "curl ${*: -1}" ;; *) exit 3 ;; esac ;;
  *)
    said=$(real "${words[@]}" 2>&1) && exit 4
    grep -q "refused" <<< "$said" || { echo "$said" >&2; exit 5; }
    echo "parsed: ${words[*]}" ;;
esac
"""
HELM = r"""#!/usr/bin/env bash
set -euo pipefail
case "$1" in
  install | upgrade) shift; "$HELM" template "$@" ;;
  test | rollback) echo "$@" ;;
  -n) [ "$3 $4 $5" = "get manifest sluice" ] && cat installed.yaml ;;
  *) "$HELM" "$@" ;;
esac
"""
DOCKER = r"""#!/usr/bin/env bash
set -euo pipefail
[ "$*" = "pull debian:bookworm-slim" ] && exit
[ "$1" = inspect ] && { echo "debian@sha256:0"; exit; }
grep -q " BASE=debian@sha256:0 " <<< "$* "
[ "$1 $2" = "build -f" ] && [ "$4" = --target ] && grep -q "^FROM .* AS $5\$" "$3"
"""
KIND = r"""#!/usr/bin/env bash
case "$1 $2" in "create cluster" | "load docker-image") ;; *) exit 3 ;; esac
"""


DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: support, namespace: agents}
spec:
  selector: {matchLabels: {app: support}}
  template:
    metadata: {labels: {app: support, sluice/inject: enabled}}
    spec:
      serviceAccountName: support
      containers: [{name: agent, image: "agent:1"}]
"""


@pytest.fixture(name="place", scope="module")
def _place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder with the files that the guides name, and the environment of its shell."""
    folder = tmp_path_factory.mktemp("guide")
    programs = folder / "bin"
    programs.mkdir()
    sluice = f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m deploy.command "$@"\n'
    for name, text in (
        ("kubectl", KUBECTL), ("helm", HELM), ("docker", DOCKER), ("kind", KIND), ("sluice", sluice)
    ):  # fmt: skip
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (folder / "deploy").symlink_to(ROOT / "deploy")
    for name in ("sidecar.key", "agent.key"):
        (folder / name).write_text("key")
    for name in ("deployment.yaml", "manifests.yaml"):
        (folder / name).write_text(DEPLOYMENT)
    for name in ("database-url", "migrate-url", "redis-url"):
        (folder / name).write_text("postgresql+asyncpg://sluice@db/sluice")
    pair = AUTHORITY.issue("sluice-control.sluice-system.svc.cluster.local")
    (folder / "control.pem").write_bytes(pair.certificate.read_bytes())
    (folder / "control-key.pem").write_bytes(pair.key.read_bytes())
    readme = (ROOT / "deploy" / "README.md").read_text()
    (values,) = re.findall(r"^```yaml\n(images:\n.*?)^```", readme, re.MULTILINE | re.DOTALL)
    # What runs: the same values, with the digests of the release before.
    before = yaml.safe_load(values.replace("sha256:0", "sha256:1"))
    (folder / "installed.yaml").write_text(template(before, options=("--no-hooks",)))
    (folder / "values.yaml").write_text(values)
    keys = fresh_keys(os.urandom)
    (folder / "secret").mkdir()
    for name, key in keys.items():
        (folder / "secret" / name).write_bytes(key)
    manifests = rendered({}, DEV)
    fragment = find(manifests, "ConfigMap", "sluice-injection")
    (folder / "sluice-injection.yaml").write_text(json.dumps(fragment))
    spec = pod(manifests, "StatefulSet", "sluice-control")
    config = find(manifests, "ConfigMap", "sluice-policies")["data"]
    policies = {"default/demo/support.yaml": config["default.demo.support.yaml"].encode()}
    volumes = {"keys": keys, "policies": policies, **ACCOUNT}
    control = Container(spec, folder / "control", volumes, secrets_of(keys))
    with ready(control):
        kept = {name: text for name, text in os.environ.items() if "SLUICE" not in name}
        yield (
            folder,
            {
                **kept,
                "PATH": f"{programs}:{os.environ['PATH']}",
                "HELM": str(servers.need("helm")),
                "KUBECTL": str(servers.need("kubectl")),
                "KUBECONFIG": str(folder / "none"),
                "SLUICE_URL": control.probe("readinessProbe").removesuffix("/health/ready"),
                "SLUICE_KEY_FILE": control.environ["SLUICE_KEY_FILE"],
            },
        )


def block(page: Path, title: str) -> str:
    return commands(str(page.relative_to(ROOT)), title)


def run(place: tuple[Path, dict[str, str]], script: str) -> subprocess.CompletedProcess[str]:
    folder, environ = place
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: str(page.parent.name))
def test_the_commands_of_a_guide_are_known(page: Path) -> None:
    for title in GUIDES[page]:
        text = block(page, title).replace("\\\n", " ")
        for program, command in COMMAND(text):
            assert command in KNOWN[program], f"{program} {command}"
        for stage in re.findall(r"--target (\S+)", text):
            assert f" AS {stage}\n" in DOCKERFILE.read_text(), stage
        for path in re.findall(r"\s(deploy/[^\s)]+)", text):
            assert (ROOT / path).exists(), path
        for line in text.splitlines():
            words = shlex.split(line, comments=True) if line.startswith("sluice agents") else []
            if words:
                parser = argparse.ArgumentParser()
                import_module("deploy.commands.client.agents").add_arguments(parser)
                parser.parse_args(words[2:])


@pytest.mark.deep(stands_in="test_the_commands_of_a_guide_are_known")
@pytest.mark.parametrize("page", GUIDES, ids=lambda page: str(page.parent.name))
def test_every_command_of_a_guide_works_as_written(
    page: Path, place: tuple[Path, dict[str, str]]
) -> None:
    sluice = 'sluice() { kubectl -n sluice-system exec statefulset/sluice-control -- sluice "$@"; }'
    said = {}
    for title in GUIDES[page]:
        done = run(place, f"{sluice}\n{block(page, title)}")
        assert done.returncode == 0, f"{title}: {done.stderr}"
        said[title] = done.stdout
    if "upgrade" in GUIDES[page]:
        # As the page says, the first comparison shows each new digest.
        changed = re.findall(
            r"^> .*image\W+(\S*/sluice/\w+)@sha256:0", said["upgrade"], re.MULTILINE
        )
        assert {each.rpartition("/")[2] for each in changed} == {"control", "sidecar"}
    if "rotate in a cluster" in GUIDES[page]:
        secret = yaml.safe_load((place[0] / "applied.yaml").read_text())["data"]
        held = {name: base64.b64decode(text) for name, text in secret.items()}
        before = {each.name: each.read_bytes() for each in (place[0] / "secret").iterdir()}
        assert held.keys() == before.keys()
        assert [name for name in held if held[name] != before[name]] == ["log.key"]
        # The new key, and the old one's endorsement.
        assert len(held["log.key"].split()) == 2
    if "render" in GUIDES[page]:
        assert "kind: ValidatingAdmissionPolicy" in (place[0] / "base.yaml").read_text()


def test_a_cluster_without_objects_has_findings(place: tuple[Path, dict[str, str]]) -> None:
    done = run(place, block(ROOT / "deploy" / "README.md", "check a cluster"))
    assert done.returncode == 1, done.stderr
    assert "injection" in done.stdout


def test_the_guide_names_the_service_account_and_the_role_of_the_demo() -> None:
    text = block(ROOT / "deploy" / "README.md", "agent")
    [workload] = re.findall(r"--workload (\S+)", text)
    [role] = re.findall(r"--role (\S+)", text)
    demo = (ROOT / "deploy/kustomize/demo/agent.yaml").read_text()
    [pod] = [each for each in yaml.safe_load_all(demo) if each["kind"] == "Deployment"]
    account = pod["spec"]["template"]["spec"]["serviceAccountName"]
    namespace = pod["metadata"]["namespace"]
    assert workload.endswith(f":system:serviceaccount:{namespace}:{account}")
    sample = yaml.safe_load(DEV.read_text())["control"]["policies"]["default/demo/support.yaml"]
    [policy] = yaml.safe_load(sample)["policies"]
    assert (policy["name"], policy["agent_role"]) == ("support-reads-the-handbook", role)


@pytest.mark.deep(stands_in="test_the_guide_names_the_service_account_and_the_role_of_the_demo")
def test_the_guides_register_the_agent_that_the_demo_is(
    place: tuple[Path, dict[str, str]],
) -> None:
    shown = run(place, "sluice agents list --json")
    if '"support"' not in shown.stdout:
        assert run(place, block(ROOT / "deploy" / "README.md", "agent")).returncode == 0
        shown = run(place, "sluice agents list --json")
    assert "system:serviceaccount:agents:support" in shown.stdout
    assert '"approved"' in shown.stdout
    policies = run(place, "sluice policies list")
    assert "support-reads-the-handbook" in policies.stdout


@pytest.mark.deep(stands_in="tests/deploy/helm/test_values.py::test_unusable_values_are_refused")
def test_a_mistyped_command_would_be_found(place: tuple[Path, dict[str, str]]) -> None:
    for wrong in (
        "kubectl -n agents rollout statuss deployment/support",
        "kubectl scale deployment/x --replica=1",
        "docker build -f deploy/images/Dockerfile --target sidecar --build-arg BASE=debian .",
        "kubectl apply -k deploy/kustomize/none",
        "helm install sluice deploy/helm/sluice --set control.replica=1",
        "kubectl exec x -- sluice agents aprove support",
        "docker build -f deploy/images/Dockerfile --target none --build-arg BASE=debian@sha256:0 .",
    ):
        assert run(place, wrong).returncode != 0, wrong
