"""`sluice webhook` as a process of its own, with the chart's template and under uvloop."""

from __future__ import annotations

import base64
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from deploy.kubernetes.admission import __main__ as entry
from deploy.kubernetes.admission import injector
from deploy.kubernetes.admission.injector import TemplateInjector
from deploy.kubernetes.admission.review import parse
from deploy.kubernetes.admission.serve import Ports
from deploy.kubernetes.admission.server import NamespaceFacts
from deploy.kubernetes.admission.template import PACKAGED
from deploy.kubernetes.admission.vocabulary import Outcome
from policies.ground.process import json_logging
from policies.ground.settings import SettingsError
from tests.deploy.kubernetes.admission.reviews import encoded, review
from tests.deploy.kubernetes.admission.running_webhook import certificate_files
from tests.support.certificates import authority
from tests.support.ports import free_port
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[4]
POD = {"metadata": {"name": "cart"}, "spec": {"containers": [{"name": "cart", "image": "x"}]}}


def settings_in(folder: Path) -> dict[str, str]:
    """With the chart's template, without an API server, on ports that the system chooses."""
    return {
        "SLUICE_WEBHOOK_LISTEN": "127.0.0.1:0",
        "SLUICE_WEBHOOK_HEALTH_LISTEN": "127.0.0.1:0",
        "SLUICE_WEBHOOK_CERTIFICATES": "files",
        "SLUICE_WEBHOOK_TLS_DIR": str(folder / "tls"),
        "SLUICE_WEBHOOK_TEMPLATE": str(PACKAGED),
        "SLUICE_WEBHOOK_EVENTS": "0",
        "SLUICE_WEBHOOK_DRAIN_SECONDS": "0",
    }


class Process:
    """The process, its ports and its log."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.port, self.health = free_port(), free_port()
        self.log = folder / "log"
        certificate_files(folder / "tls")
        inherited = {name: text for name, text in os.environ.items() if "SLUICE" not in name}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "deploy.kubernetes.admission", "serve"],
                cwd=ROOT,
                stdout=log,
                stderr=log,
                env={
                    **inherited,
                    **settings_in(folder),
                    "SLUICE_LOG_FORMAT": "json",
                    "SLUICE_WEBHOOK_LISTEN": f"127.0.0.1:{self.port}",
                    "SLUICE_WEBHOOK_HEALTH_LISTEN": f"127.0.0.1:{self.health}",
                    **environ,
                },
            )

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def messages(self) -> str:
        return "\n".join(line["message"] for line in self.lines())

    def ready(self) -> None:
        def listening() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return "webhook listens on https://" in self.log.read_text()

        until("the webhook listens", listening)


def gets_the_sidecar(port: int) -> None:
    """A pod that is reviewed at this port."""
    context = authority().client()
    context.check_hostname = False
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
    try:
        connection.request("POST", "/inject/enabled?timeout=5s", encoded(review(object=POD)))
        answer = connection.getresponse()
        response = json.loads(answer.read())["response"]
    finally:
        connection.close()
    patch = json.loads(base64.b64decode(response["patch"]))
    assert answer.status == 200
    assert any("sluice-proxy" in json.dumps(step) for step in patch)
    assert {step["op"] for step in patch} == {"add"}


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Any]:
    made: list[Process] = []

    def start(**environ: str) -> Process:
        made.append(Process(tmp_path, **environ))
        return made[-1]

    yield start
    for each in made:
        each.process.kill()
        each.process.wait()


@pytest.mark.deep(stands_in="test_the_command_injects_a_pod_and_a_stop_exits_with_success")
def test_a_pod_gets_the_sidecar_and_a_stop_exits_with_success(started: Any) -> None:
    process: Process = started()
    process.ready()
    gets_the_sidecar(process.port)
    process.process.send_signal(signal.SIGTERM)
    assert process.process.wait(60) == 0
    (line,) = [line for line in process.lines() if "injected in" in line["message"]]
    assert line["request_id"] == review()["request"]["uid"]
    assert line["message"].startswith("pod `shop/cart` injected in ")


@pytest.mark.deep(stands_in="test_unusable_settings_end_the_command_with_2_and_every_message")
def test_unusable_settings_exit_with_2_and_every_message(started: Any, tmp_path: Path) -> None:
    process: Process = started(SLUICE_WEBHOOK_LISTEN="8443", SLUICE_WEBHOOK_LEAF_HOURS="never")
    assert process.process.wait(60) == 2
    assert "SLUICE_WEBHOOK_LISTEN" in process.messages()
    assert "SLUICE_WEBHOOK_LEAF_HOURS" in process.messages()
    absent = started(SLUICE_WEBHOOK_TEMPLATE=str(tmp_path / "absent"))
    assert absent.process.wait(60) == 2
    assert "SLUICE_WEBHOOK_TEMPLATE" in absent.messages()


@pytest.mark.deep(stands_in="test_a_taken_port_ends_the_command_with_1_and_one_line")
def test_a_taken_port_exits_with_1_and_one_line(started: Any) -> None:
    first: Process = started()
    first.ready()
    second: Process = started(SLUICE_WEBHOOK_LISTEN=f"127.0.0.1:{first.port}")
    assert second.process.wait(60) == 1
    assert "the webhook ends: SLUICE_WEBHOOK_LISTEN: can't listen" in second.messages()
    assert "Traceback" not in second.log.read_text()


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """`sluice webhook` in this process, which keeps its own log: the exit code."""
    certificate_files(tmp_path / "tls")
    monkeypatch.setattr(json_logging, "configure", lambda *_args, **_options: None)
    monkeypatch.setattr(json_logging, "catch_all", lambda _service: None)
    monkeypatch.setattr(sys, "setswitchinterval", lambda _: None)
    for name in [each for each in os.environ if "SLUICE" in each]:
        monkeypatch.delenv(name)

    def run(**environ: str) -> int:
        for name, text in {**settings_in(tmp_path), **environ}.items():
            monkeypatch.setenv(name, text)
        return entry.main(["serve"])

    return run


def test_the_command_injects_a_pod_and_a_stop_exits_with_success(
    command: Callable[..., int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "sluice.webhook")
    unhandled: list[int] = []
    reviewed: list[Future[None]] = []
    former = signal.signal(signal.SIGTERM, lambda number, _: unhandled.append(number))

    def announce(ports: Ports) -> None:
        if ports.reviews is not None:
            reviewed.append(client.submit(gets_the_sidecar, ports.reviews.port))
            reviewed[0].add_done_callback(lambda _: os.kill(os.getpid(), signal.SIGTERM))

    monkeypatch.setattr(entry, "_announce", announce)
    try:
        with ThreadPoolExecutor(1) as client:
            assert command() == 0
    finally:
        signal.signal(signal.SIGTERM, former)
    assert not unhandled
    reviewed[0].result()
    (line,) = [each for each in caplog.messages if "injected in" in each]
    assert line.startswith("pod `shop/cart` injected in ")


def test_unusable_settings_end_the_command_with_2_and_every_message(
    command: Callable[..., int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert command(SLUICE_WEBHOOK_LISTEN="8443", SLUICE_WEBHOOK_LEAF_HOURS="never") == 2
    assert [each.partition(":")[0] for each in caplog.messages] == [
        "SLUICE_WEBHOOK_LISTEN",
        "SLUICE_WEBHOOK_LEAF_HOURS",
    ]
    caplog.clear()
    usable = {"SLUICE_WEBHOOK_LISTEN": "127.0.0.1:0", "SLUICE_WEBHOOK_LEAF_HOURS": "72"}
    assert command(**usable, SLUICE_WEBHOOK_TEMPLATE=str(tmp_path / "absent")) == 2
    (told,) = caplog.messages
    assert told.startswith("SLUICE_WEBHOOK_TEMPLATE")


def test_a_taken_port_ends_the_command_with_1_and_one_line(
    command: Callable[..., int], caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for name in ("SLUICE_WEBHOOK_HEALTH_LISTEN", "SLUICE_WEBHOOK_LISTEN"):
            caplog.clear()
            others = {"SLUICE_WEBHOOK_HEALTH_LISTEN": "127.0.0.1:0"}
            assert command(**{**others, name: address}) == 1
            (line,) = [each for each in caplog.records if each.levelname == "CRITICAL"]
            told = f"the webhook ends: {name}: can't listen on `{address}`"
            assert line.getMessage().startswith(told)
            assert line.exc_info is None


def injected(decide: TemplateInjector) -> str:
    asked = parse(encoded(review(object=POD)), None)
    verdict = decide(asked, NamespaceFacts())
    assert verdict.outcome is Outcome.injected
    return json.dumps(verdict.patch)


def test_a_changed_template_is_used_and_an_unusable_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "injection.yaml"
    text = PACKAGED.read_text()
    path.write_text(text)
    decide = TemplateInjector(path)
    assert "sluice/changed" not in injected(decide)
    path.write_text(text.replace("image: ", "image: sluice/changed-", 1))
    decide.load()
    assert "sluice/changed" in injected(decide)
    path.write_text("mode: neither")
    for _ in range(3):
        decide.load()
    assert "sluice/changed" in injected(decide)
    complaints = [each for each in caplog.messages if "stays in use" in each]
    assert complaints
    assert len(complaints) == len(set(complaints)), "logged more than once"
    path.unlink()
    decide.load()
    assert "sluice/changed" in injected(decide)
    path.write_text(text)
    decide.load()
    assert "sluice/changed" not in injected(decide)
    assert injector.POLL_SECONDS <= 30


def test_the_webhook_does_not_start_without_a_usable_template(tmp_path: Path) -> None:
    for text in ("", "mode: explicit", "[" * 1000):
        path = tmp_path / "injection.yaml"
        path.write_text(text)
        with pytest.raises(SettingsError):
            TemplateInjector(path)


@pytest.mark.parametrize(
    ("facts", "label", "outcome"),
    [
        (NamespaceFacts(), None, Outcome.injected),
        (NamespaceFacts(), "disabled", Outcome.refused),
        (NamespaceFacts(optional=True), "disabled", Outcome.skipped),
        (NamespaceFacts(optional=True), None, Outcome.injected),
        (NamespaceFacts(restricted=True), None, Outcome.injected),
    ],
)
def test_the_path_s_facts_are_the_namespace_s_labels(
    facts: NamespaceFacts, label: str | None, outcome: Outcome
) -> None:
    labels = {"labels": {"sluice/inject": label}} if label else {}
    pod = {**POD, "metadata": {"name": "cart", **labels}}
    asked = parse(encoded(review(object=pod)), None)
    assert TemplateInjector(PACKAGED)(asked, facts).outcome is outcome
