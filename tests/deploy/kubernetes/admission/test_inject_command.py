"""`sluice inject` as an operator uses it: files, streams, errors and exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deploy.kubernetes.admission.template import PACKAGED
from tests.deploy.kubernetes.admission.goldens import run

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: agent}
spec: {containers: [{name: agent, image: a}]}
"""
REFUSED = POD.replace("{containers", "{hostNetwork: true, containers").replace(
    "name: agent}\n", "name: bad}\n", 1
)
LEVELS = "".join(f"b{n}: &b{n} [{', '.join([f'*b{n - 1}'] * 9)}]\n" for n in range(1, 9))
BOMB = f"b0: &b0 [x, x]\n{LEVELS}"
"""Few lines that stand for millions of values."""
SERVICE = "# Kept.\napiVersion: v1\nkind: Service\nmetadata: {name: s}  # as it is\n"


def test_several_files_are_written_in_their_order(tmp_path: Path) -> None:
    first, second = tmp_path / "service.yaml", tmp_path / "pod.yaml"
    first.write_text(SERVICE)
    second.write_text(POD)
    code, output, report = run(["-f", str(first), "-f", str(second)])
    assert code == 0
    assert output.startswith(f"{SERVICE}---\napiVersion: v1\nkind: Pod\n")
    assert output.count("name: sluice-proxy") == 1
    assert report == "Pod/agent: injected\n"


def test_an_already_injected_pod_is_passed_on_byte_for_byte() -> None:
    _, once, _ = run(["-f", "-"], POD)
    assert run(["-f", "-"], once) == (0, once, "Pod/agent: has the sidecar already\n")


def test_one_refused_pod_prevents_all_from_being_written() -> None:
    code, output, report = run(["-f", "-"], f"{POD}---\n{REFUSED}")
    assert (code, output) == (1, "")
    assert report.startswith("Pod/agent: injected\nPod/bad: refused\n  `hostNetwork` opens")


def test_a_check_reports_the_reason_and_writes_no_manifest() -> None:
    code, output, report = run(["--check", "-f", "-"], f"{SERVICE}---\n{POD}---\n{REFUSED}")
    assert (code, report) == (1, "")
    assert output.startswith("Pod/agent: would be injected\nPod/bad: would be refused\n  `hostN")
    assert "(host-namespace)" in output
    assert run(["--check", "-f", "-"], POD) == (0, "Pod/agent: would be injected\n", "")


def test_manifests_without_a_pod_pass_with_a_note() -> None:
    code, output, report = run(["-f", "-"], SERVICE)
    assert (code, output) == (0, SERVICE)
    assert report == "sluice inject: the manifests contain no pod\n"


def test_the_namespace_of_the_manifest_decides_then_the_option() -> None:
    declined = POD.replace("name: agent}\n", "name: agent, labels: {sluice/inject: disabled}}\n", 1)
    assert run(["-f", "-"], declined)[0] == 1
    code, output, report = run(["-f", "-", "--namespace-label", "optional"], declined)
    assert (code, output) == (0, declined)
    assert report == "Pod/agent: left as it is: `sluice/inject: disabled`\n"


def test_the_settings_are_a_fragment_or_its_configmap(tmp_path: Path) -> None:
    fragment = tmp_path / "injection.yaml"
    fragment.write_text(PACKAGED.read_text().replace("sluice/sidecar:", "mirror.example/sidecar:"))
    code, output, _ = run(["-f", "-", "--settings", str(fragment)], POD)
    assert code == 0
    assert "mirror.example/sidecar:" in output
    manifest = tmp_path / "configmap.yaml"
    lines = "".join(f"    {line}\n" for line in fragment.read_text().splitlines())
    manifest.write_text(f"kind: ConfigMap\ndata:\n  injection.yaml: |\n{lines}")
    assert run(["-f", "-", "--settings", str(manifest)], POD)[1] == output


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: [", "-, document 1: "),
        (f"{POD}---\na: b: c", "-, document 2: "),
        ("a: 1\nb: 2\na: 3", "-, document 1: line 3: key `a` is there twice"),
        ("a: !!python/object:os.system {}", "could not determine a constructor"),
        ("[" * 100_000, "-, document 1: "),
        ("? [a]\n: b", "-, document 1: "),
        (BOMB, "more than 1000000 values"),
        ("a: \x07", "-, document 1: "),
        ("x" * 17_000_000, "over the limit of 16777216"),
    ],
)  # fmt: skip
def test_an_unreadable_manifest_is_refused_with_a_message(text: str, complaint: str) -> None:
    code, output, report = run(["-f", "-"], text)
    assert (code, output) == (2, "")
    assert report.startswith("sluice inject: ")
    assert complaint in report


def test_unusable_files_are_refused_with_all_messages_at_once(tmp_path: Path) -> None:
    missing, binary = tmp_path / "missing.yaml", tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    bad = tmp_path / "settings.yaml"
    bad.write_text("mode: magic")
    for asked in (
        ["-f", str(missing)],
        ["-f", str(binary)],
        ["-f", str(tmp_path)],
        ["-f", "-", "--settings", str(missing)],
    ):
        code, output, report = run(asked, POD)
        assert (code, output) == (2, ""), asked
        assert report.startswith("sluice inject: "), asked
    code, _, report = run(["-f", "-", "--settings", str(bad)], POD)
    assert code == 2
    assert len(report.splitlines()) == 5, "all complaints at once"


@pytest.mark.parametrize("arguments", [[], ["-f"], ["-f", "-", "--namespace-label", "disabled"]])
def test_unusable_arguments_exit_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        run(arguments)
    assert raised.value.code == 2


def test_the_command_runs_by_its_name_and_as_a_filter() -> None:
    asked = [sys.executable, "-m", "deploy.command", "inject", "-f", "-"]
    done = subprocess.run(asked, input=POD, capture_output=True, text=True, check=True)
    assert done.stdout == run(["-f", "-"], POD)[1]
    assert done.stderr == "Pod/agent: injected\n"
