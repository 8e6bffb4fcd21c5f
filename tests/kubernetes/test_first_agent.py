"""The demo of `deploy/kustomize/demo`, with everything but a kubelet: the control API and the
sidecar run as the chart renders them, the token is a real one of the pod's, and the agent is curl.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import yaml

from control_api.tenants.bootstrap import fresh_keys
from tests import servers
from tests.deploy.helm.chart import NAMESPACE, NEWEST, ROOT, Choice, Manifest, find
from tests.deploy.helm.container import Container
from tests.kubernetes.api_server import ISSUER, ApiServer
from tests.kubernetes.test_chart import install, token
from tests.support.ports import free_port
from tests.support.waiting import until

DEMO = ROOT / "deploy" / "kustomize" / "demo"
HOST = "handbook.data.svc.cluster.local"


def demo() -> list[Manifest]:
    done = subprocess.run(
        [str(servers.need("kubectl")), "kustomize", str(DEMO)],
        capture_output=True,
        text=True,
        check=True,
    )
    return list(yaml.safe_load_all(done.stdout))


@contextlib.contextmanager
def documents(folder: Path, config: Manifest) -> Iterator[int]:
    """The demo's data source on a port of this machine."""
    folder.mkdir()
    for name, text in config["data"].items():
        (folder / name).write_text(text)
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()


@contextlib.contextmanager
def started(container: Container, address: str, **changed: str) -> Iterator[Container]:
    process = container.start(**changed)

    def ready() -> bool:
        assert process.poll() is None, container.said()
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{address}/health/ready").status_code == 200
        return False

    try:
        until(f"{address} is ready", ready)
        yield container
    finally:
        process.terminate()
        assert process.wait(60) == 0, container.said()


def injected(manifests: list[Manifest], folder: Path) -> Manifest:
    """The agent's pod with its sidecar, as `sluice inject` writes it from the chart's settings."""
    settings = folder / "injection.yaml"
    fragment = find(manifests, "ConfigMap", "sluice-injection")
    settings.write_text(fragment["data"]["injection.yaml"])
    given = folder / "demo.yaml"
    given.write_text(yaml.safe_dump_all(demo()))
    command = ["deploy.command", "inject", "--settings", str(settings), "-f", str(given)]
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=True
    )
    agent = find(list(yaml.safe_load_all(done.stdout)), "Deployment", "support")
    spec: Manifest = agent["spec"]["template"]["spec"]
    return spec


def enrolling_control(
    server: ApiServer, manifests: list[Manifest], folder: Path, keys: dict[str, bytes]
) -> tuple[Container, dict[str, str]]:
    """The control API as the chart runs it, and what differs on this machine."""
    account = {
        "ca.crt": (server.folder / "certificates" / "apiserver.crt").read_bytes(),
        "token": token(server, "sluice-control").encode(),
    }
    config = find(manifests, "ConfigMap", "sluice-policies")["data"]
    policies = {"default/demo/support.yaml": config["default.demo.support.yaml"].encode()}
    spec = find(manifests, "StatefulSet", "sluice-control")["spec"]["template"]["spec"]
    volumes = {"keys": keys, "api-server": account, "policies": policies}
    secrets = {"sluice-keys/superadmin.key": keys["superadmin.key"].decode()}
    control = Container(spec, folder, volumes, secrets)
    issuers = control.environ["SLUICE_ENROL_ISSUERS"]
    here = issuers.replace("=https://kubernetes.default.svc/", f"={server.url}/")
    return control, {"SLUICE_ENROL_ISSUERS": here}


def test_the_first_agent_reads_only_what_its_policy_allows(
    api_server: ApiServer, tmp_path: Path
) -> None:
    api_server.namespace(NAMESPACE)
    manifests, keys = Choice(size="dev").on(NEWEST), fresh_keys(os.urandom)
    install(api_server, manifests)
    control, here = enrolling_control(api_server, manifests, tmp_path / "control", keys)
    address = control.probe("readinessProbe").removesuffix("/health/ready")
    config = find(demo(), "ConfigMap", "handbook")
    with (
        documents(tmp_path / "documents", config) as source,
        started(control, address, **here),
    ):
        workload = f"{ISSUER}:system:serviceaccount:agents:support"
        for words in (
            ("register", "--id", "support", "--role", "support", "--workload", workload),
            ("submit", "support"),
            ("approve", "support"),
        ):
            assert control.start("agents", *words, SLUICE_URL=address).wait(60) == 0, control.said()
        [sidecar_spec] = injected(manifests, tmp_path)["initContainers"]
        listed = find(demo(), "ConfigMap", "sluice-sources")["data"]["sources.yaml"]
        sources = listed.replace(f"http://{HOST}:8080", f"http://127.0.0.1:{source}")
        volumes = {
            "sluice-identity": {"token": pod_token(api_server).encode()},
            "sluice-sources-namespace": {
                "sources.yaml": sources.replace("10.0.0.0/8", "127.0.0.0/8").encode()
            },
        }
        sidecar = Container({"containers": [sidecar_spec]}, tmp_path / "sidecar", volumes, {})
        proxy = f"127.0.0.1:{free_port()}"
        text = sidecar.environ["SLUICE_SIDECAR_SETTINGS"].replace("127.0.0.1:8711", proxy)
        text = text.replace(f"http://sluice-control.{NAMESPACE}.svc.cluster.local:8700", address)
        api = f"http://127.0.0.1:{sidecar.ports[8710]}"
        with (
            started(sidecar, api, SLUICE_SIDECAR_SETTINGS=text),
            httpx.Client(proxy=f"http://{proxy}") as agent,
        ):
            allowed = agent.get(f"http://{HOST}:8080/leave.txt")

            assert (allowed.status_code, allowed.text) == (200, config["data"]["leave.txt"])
            denied = agent.get(f"http://{HOST}:8080/payroll.txt")
            assert denied.status_code == 403
            assert "earns" not in denied.text


def pod_token(server: ApiServer) -> str:
    """The token that the kubelet mounts into the sidecar of a pod of `agents/support`."""
    server.namespace("agents")
    server.account("agents", "support")
    spec = {"serviceAccountName": "support", "containers": [{"name": "agent", "image": "x"}]}
    where = {"generateName": "support-"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": where, "spec": spec}
    made = server.create_pod("agents", pod, dry_run=False)["metadata"]
    bound = {"apiVersion": "v1", "kind": "Pod", "name": made["name"], "uid": made["uid"]}
    audience = {"audiences": ["sluice"], "expirationSeconds": 600}
    return token(server, "support", "agents", boundObjectRef=bound, **audience)
