"""The admission webhook as it runs: one process on one core, over TLS connections that are kept, as
the API server keeps them.

python -m tests.benchmarks.webhook            about five minutes
python -m tests.benchmarks.webhook --quick    about one: checks that everything runs
"""

from __future__ import annotations

import argparse
import http.client
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.benchmarks.measure import (
    LOAD,
    MIB,
    SERVER,
    Figure,
    cpu_seconds,
    directory,
    load,
    turn_about,
)
from tests.deploy.kubernetes.admission.reviews import encoded, review
from tests.deploy.kubernetes.admission.running_webhook import certificate_files
from tests.support.certificates import authority
from tests.support.ports import free_port
from tests.support.stack import ROOT, Service, listens
from tests.support.waiting import until

CONNECTIONS = 8
TEMPLATE = ROOT / "deploy/kubernetes/admission/injection.yaml"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "generateName": "cart-5d9f7c8b6-",
        "labels": {"app": "cart", "pod-template-hash": "5d9f7c8b6"},
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "cart-5d9f7c8b6", "uid": "u",
             "controller": True, "blockOwnerDeletion": True}
        ],
    },
    "spec": {
        "serviceAccountName": "cart",
        "volumes": [{"name": "kube-api-access-x", "projected": {"defaultMode": 420}}],
        "containers": [
            {
                "name": name,
                "image": f"registry.example.com/{name}@sha256:{'0' * 64}",
                "env": [{"name": f"VARIABLE_{number}", "value": "x" * 40} for number in range(12)],
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
                "volumeMounts": [
                    {"name": "kube-api-access-x", "readOnly": True,
                     "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
                ],
                "securityContext": {"runAsUser": 1000, "allowPrivilegeEscalation": False},
            }
            for name in ("cart", "worker")
        ],
    },
}  # fmt: skip
"""A pod as a ReplicaSet creates it, after the server's own admission plug-ins: 3 KB."""


def post(body: bytes) -> bytes:
    head = (
        "POST /inject/enabled?timeout=5s HTTP/1.1\r\n"
        "Host: sluice-webhook.sluice-system.svc:443\r\n"
        "User-Agent: kube-apiserver-admission\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Accept: application/json, */*\r\n"
        "Content-Type: application/json\r\n\r\n"
    )
    return head.encode() + body


REVIEW = post(encoded(review(object=POD)))


@contextmanager
def webhook(made: Path) -> Iterator[Service]:
    """The webhook as a process on its core; its port is that of the reviews."""
    port, health = free_port(), free_port()
    certificate_files(made / "tls")
    environ = {
        "SLUICE_WEBHOOK_LISTEN": f"127.0.0.1:{port}",
        "SLUICE_WEBHOOK_HEALTH_LISTEN": f"127.0.0.1:{health}",
        "SLUICE_WEBHOOK_CERTIFICATES": "files",
        "SLUICE_WEBHOOK_TLS_DIR": str(made / "tls"),
        "SLUICE_WEBHOOK_TEMPLATE": str(TEMPLATE),
        "SLUICE_WEBHOOK_EVENTS": "0",
        "SLUICE_WEBHOOK_DRAIN_SECONDS": "0",
    }
    command = [sys.executable, "-m", "deploy.kubernetes.admission", "serve"]
    service = Service("webhook", command, environ, made / "webhook.log", health, SERVER)
    service.start()
    service.port = port
    until("the webhook listens", lambda: listens(port))
    try:
        yield service
    finally:
        service.kill()


@contextmanager
def rival(made: Path, kind: str) -> Iterator[Service]:
    port = free_port()
    module = "tests.benchmarks.webhook_rivals"
    command = [sys.executable, "-m", module, str(port), str(made / "tls"), kind]
    service = Service(kind, command, {}, made / f"{kind}.log", port, SERVER)
    service.start(ready=False)
    until(f"{kind} listens", lambda: listens(port))
    try:
        yield service
    finally:
        service.kill()


def run(service: Service, seconds: float, each: int = 0, sent: bytes = REVIEW) -> dict[str, Any]:
    return load(service.port, sent, CONNECTIONS, seconds, str(authority().path), str(each))


def rates(made: Path, seconds: float, rounds: int) -> Iterator[Figure]:
    """Reviews a second, beside the floor and the rival; waiting times; CPU a review."""
    with webhook(made) as ours:
        for kind in ("echo", "plain"):
            with rival(made, kind) as other:
                a, b, ratio = turn_about(
                    lambda: run(ours, seconds), lambda: run(other, seconds), rounds
                )
            name = f"webhook, {CONNECTIONS} connections, to {kind}"
            yield Figure(name, f"{a:,.0f}/s against {b:,.0f}/s", ratio, "", True)
        before = cpu_seconds(ours)
        last = run(ours, seconds)
        cost = (cpu_seconds(ours) - before) / last["answers"] * 1e6
    value = f"{last['rate']:,.0f}/s, {cost:,.0f} µs of CPU each"
    yield Figure("webhook, reviews on one core", value, None, ">= 1,000/s", last["rate"] >= 1000)
    value = f"p50 {last['p50']:.1f} ms, p99 {last['p99']:.1f} ms"
    yield Figure("webhook, waiting time", value, None, "p99 < 20 ms", last["p99"] < 20)


def memory(made: Path, reviews: int) -> Iterator[Figure]:
    """Resident memory while the webhook answers `reviews`."""
    samples: list[int] = []
    done = 0
    with webhook(made) as ours:
        run(ours, 2)
        while done < reviews:
            done += run(ours, 10)["answers"]
            samples.append(ours.resident())
    first, last, most = (size / MIB for size in (samples[0], samples[-1], max(samples)))
    value = f"{most:.1f} MiB at most; {first:.1f} then {last:.1f} after {done:,}"
    yield Figure("webhook, resident memory", value, last / first, "< 1.1", last / first < 1.1)


def renewal(made: Path, seconds: float) -> Iterator[Figure]:
    """The certificate's files are replaced while each connection carries twenty reviews."""
    with webhook(made) as ours:
        over = threading.Event()
        renewals = 0

        def renew() -> None:
            nonlocal renewals
            while not over.wait(2):
                certificate_files(made / "tls")
                renewals += 1

        thread = threading.Thread(target=renew)
        thread.start()
        answer = run(ours, seconds, each=20)
        over.set()
        thread.join()
        served = ours.log.read_text().count("is served") - 1
    value = f"{answer['lost']} of {answer['answers']:,} lost; {served} of {renewals} were served"
    fine = answer["lost"] == 0 and served >= 1
    yield Figure("webhook, certificates replaced under load", value, None, "0 lost", fine)


HOSTILE = {
    "2 MB pods": post(
        encoded(review(object={**POD, "metadata": {"annotations": {"a": "b" * 2_000_000}}}))
    ),
    "2 MB of nested lists": post(b'{"a":' + b"[" * 2_000_000),
    "2 MB of 90,000 objects": post(
        b'{"a":[' + b",".join(b'{"name":"variable-%d"}' % each for each in range(90_000)) + b"]}"
    ),
}


def hostile(made: Path, seconds: float) -> Iterator[Figure]:
    """What honest reviews wait while another connection sends hostile ones without a pause."""
    with webhook(made) as ours:
        for name, sent in HOSTILE.items():
            over = threading.Event()
            thread = threading.Thread(target=flood, args=(ours.port, sent, over))
            thread.start()
            answer = run(ours, seconds)
            over.set()
            thread.join()
            value = f"{answer['rate']:,.0f}/s, p99 {answer['p99']:.1f} ms"
            fine = answer["lost"] == 0
            yield Figure(f"webhook, beside {name}", value, None, "0 lost", fine)
        value = f"{ours.resident() / MIB:.1f} MiB"
    yield Figure("webhook, resident memory after these", value, None, "", True)


def flood(port: int, sent: bytes, over: threading.Event) -> None:
    """One connection after the other, each with one request."""
    os.sched_setaffinity(0, LOAD)  # of this thread: it must not take the webhook's core
    context = authority().client()
    context.check_hostname = False
    body = sent.partition(b"\r\n\r\n")[2]
    while not over.is_set():
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
        try:
            connection.request("POST", "/inject", body, {"Content-Type": "application/json"})
            connection.getresponse().read()
        except OSError:
            continue  # the webhook closed it while the body was on its way
        finally:
            connection.close()


def figures(quick: bool) -> Iterator[Figure]:
    seconds, rounds = (3.0, 1) if quick else (8.0, 5)
    with directory() as made:
        yield from rates(made, seconds, rounds)
        yield from renewal(made, 14.0 if quick else 40.0)
        yield from hostile(made, seconds)
        yield from memory(made, 5_000 if quick else 100_000)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.webhook")
    parser.add_argument("--quick", action="store_true", help="one short round of each")
    for figure in figures(parser.parse_args().quick):
        print(figure.row(), flush=True)
