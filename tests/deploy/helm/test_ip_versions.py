"""The rendered containers in network namespaces like those of pods: IPv6 alone, both versions, IPv4
alone. The kubelet's probes arrive at the pod's address, and there the sidecar finds its control
API. Skipped without root and namespaces."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from control_api.tenants.bootstrap import fresh_keys
from deploy.kubernetes.admission.template import read
from deploy.local.provision import AGENT_ID, ROLE
from tests.deploy.helm.chart import DEV, Choice, Manifest, find, rendered
from tests.deploy.helm.container import Container, Files
from tests.sidecar.redirect.namespace import Namespace
from tests.support.certificates import authority
from tests.support.packet_filter import possible

pytestmark = pytest.mark.skipif(
    not possible("curl"), reason="needs root, network namespaces and curl"
)

V4, V6 = "192.0.2.1", "[2001:db8::1]"
CABLE = "ip link set lo up; ip link add v0 type veth peer name v1; "
CABLE += "ip link set v0 up; ip link set v1 up; "
ADD_V4 = "ip addr add 192.0.2.1/24 dev v0; "
ADD_V6 = "ip -6 addr add 2001:db8::1/64 dev v0 nodad; "
# As a kernel without IPv6: not even `::1` can be bound.
NO_IPV6 = "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; "
PODS = {
    "IPv6 alone": (CABLE + ADD_V6, [V6]),
    "both versions": (CABLE + ADD_V4 + ADD_V6, [V4, V6]),
    "IPv4 alone": (NO_IPV6 + CABLE + ADD_V4, [V4]),
}
_LIBRARY = "import sys, {0}; print({0}.get(sys.argv[1]).status_code, end='')"
CLIENTS = [
    ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}"],
    [sys.executable, "-c", _LIBRARY.format("requests")],
    [sys.executable, "-c", _LIBRARY.format("httpx")],
]
SETTINGS = "SLUICE_SIDECAR_SETTINGS"
KEYS = ("sidecar.key", "agent.key")


@contextmanager
def running_container(container: Container, **changed: str) -> Iterator[None]:
    process = container.start(**changed)
    try:
        yield
    finally:
        process.terminate()
        code = process.wait(60)
    assert code == 0, container.said()


def ask(pod: Namespace, *addresses: str) -> list[str]:
    ended = pod.run(sys.executable, "-m", "tests.deploy.helm.asking", *addresses)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split()


def clients(pod: Namespace, fragment: str, host: str, probe: str) -> list[str]:
    """What the agent's clients get from the API server, if that is at `host`, past the forward
    proxy; and through it, since no source has that name."""
    variables = [
        f"{each['name']}={each['value'].replace('$(KUBERNETES_SERVICE_HOST)', host.strip('[]'))}"
        for each in read(fragment, "rendered").environment
    ]
    own = probe.replace(probe.split("/")[2], f"{host}:8710")
    return [
        pod.run("env", *variables, *client, address).stdout
        for address in (own, "http://elsewhere.test/")
        for client in CLIENTS
    ]


def template(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    spec: Manifest = find(manifests, kind, name)["spec"]["template"]["spec"]
    return spec


def sidecar_of(manifests: list[Manifest], folder: Path, pod: Namespace, keys: Files) -> Container:
    """The container that would be injected, without its tokens: keys are in a Secret."""
    text = find(manifests, "ConfigMap", "sluice-injection")["data"]["injection.yaml"]
    proxy = read(text, "rendered").init_containers[-1]
    volumes = {"sluice-agent": {**keys, "agent.yaml": f"id: {AGENT_ID}\nrole: {ROLE}\n".encode()}}
    return Container({"containers": [proxy]}, folder / "sidecar", volumes, {}, pod.pid)


@pytest.mark.deep(
    stands_in="tests/deploy/helm/test_rendering.py::test_every_port_is_opened_for_both_ip_versions"
)
@pytest.mark.parametrize("name", PODS)
def test_probes_are_answered_at_the_address_of_the_pod(name: str, tmp_path: Path) -> None:
    script, hosts = PODS[name]
    values = Choice(size="dev", certificates="cert-manager", identity="secret").values
    manifests = rendered(values, DEV)
    keys = fresh_keys(os.urandom)
    secrets = {"sluice-keys/superadmin.key": keys["superadmin.key"].decode()}
    spec = template(manifests, "StatefulSet", "sluice-control")
    pair = authority("chart").issue("127.0.0.1")
    fragment = find(manifests, "ConfigMap", "sluice-injection")["data"]["injection.yaml"]
    of_webhook = {
        "injection": {"injection.yaml": fragment.encode()},
        "tls": {"tls.crt": pair.certificate.read_bytes(), "tls.key": pair.key.read_bytes()},
    }
    with ExitStack() as stack:
        pod = Namespace(stack)
        pod.script(script)
        control = Container(spec, tmp_path / "control", {"keys": keys}, secrets, pod.pid)
        stack.enter_context(running_container(control))
        probes = [control.probe("readinessProbe", host) for host in hosts]
        probes += [f"http://{host}:8701/metrics" for host in hosts]
        assert ask(pod, *probes) == ["200"] * len(probes), control.said()
        assert "listens on http://*:8700" in control.said()

        url = control.probe("readinessProbe", hosts[-1]).removesuffix("/health/ready")
        made = tmp_path / "made"
        made.mkdir()
        assert control.start("provision", "--dir", str(made), SLUICE_URL=url).wait(60) == 0
        of_agent = {each: (made / each).read_bytes() for each in KEYS}
        sidecar = sidecar_of(manifests, tmp_path, pod, of_agent)
        text = sidecar.environ[SETTINGS]
        there = "http://sluice-control.sluice-system.svc.cluster.local:8700"
        assert there in text
        stack.enter_context(running_container(sidecar, **{SETTINGS: text.replace(there, url)}))
        probes = [sidecar.probe("readinessProbe", host) for host in hosts]
        assert ask(pod, *probes) == ["200"] * len(hosts), sidecar.said()

        for host in hosts:
            assert clients(pod, fragment, host, probes[0]) == ["200"] * 3 + ["403"] * 3

        spec = template(manifests, "Deployment", "sluice-webhook")
        # In a pod of its own: its metrics have the port of the control API's.
        other = Namespace(stack)
        other.script(script)
        webhook = Container(spec, tmp_path / "webhook", of_webhook, {}, other.pid)
        away = {"SLUICE_WEBHOOK_EVENTS": "0", "SLUICE_WEBHOOK_DRAIN_SECONDS": "0"}
        stack.enter_context(running_container(webhook, **away))
        probes = [webhook.probe("readinessProbe", host) for host in hosts]
        # A GET is no review, so the answer is that the method is not allowed.
        probes += [f"https://{host}:8443/inject" for host in hosts]
        assert ask(other, *probes) == ["200"] * len(hosts) + ["405"] * len(hosts), webhook.said()
