"""`sluice sidecar --help`, `--example` and `--check`: what they print is what the reader reads."""

import copy
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from policies.ground.keys import make_key
from policies.ground.settings import SettingsError
from sidecar.config.file import read
from sidecar.config.help import EXAMPLE, EXAMPLES, REQUIRED, keys, settings_schema
from sidecar.settings.model import SidecarSettings
from tests.deploy.launcher import environ
from tests.sidecar.in_process import run_main
from tests.support.certificates import authority

KEY = make_key(b"k" * 32)
PAIRS = {
    f"{where}.{part}"
    for where in ("control_tls", "sources.tls", "traces.tls")
    for part in ("certificate", "key")
}
CHOSEN = ("sources.arguments", "authzen.resources.when", "authzen.actions.when")
"""Mappings whose keys the operator chooses."""
# A key that is commented out follows its `#` at once, or with the indentation of its block.
COMMENTED_OUT = re.compile(r"^( *)#(?! \S)", re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With every file that the example names."""
    for name in ("sidecar.key", "agent.key"):
        (tmp_path / name).write_text(KEY)
    (tmp_path / "agent.yaml").write_text("id: agt_loans")
    trusted = authority()
    (tmp_path / "aws-credentials").touch()
    (tmp_path / "crm.password").touch()
    pem = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    (tmp_path / "authzen.pem").write_bytes(pem)
    for name in ("control-ca", "crm-ca", "collector-ca", "gateways"):
        (tmp_path / f"{name}.pem").write_bytes(trusted.path.read_bytes())
    for name in ("listen", "client", "crm", "sidecar", "collector", "edge"):
        pair = trusted.issue("crm.internal")
        (tmp_path / f"{name}.pem").write_bytes(pair.certificate.read_bytes())
        (tmp_path / f"{name}-key.pem").write_bytes(pair.key.read_bytes())
    return tmp_path


def whole() -> str:
    """The example with everything that is commented out put into force. `control_tls` and
    `traces.tls` need `https://`."""
    text = COMMENTED_OUT.sub(r"\1", EXAMPLE.read_text())
    for key in ("control", "  endpoint"):
        text = text.replace(f"\n{key}: http://", f"\n{key}: https://")
    return text


def configured() -> str:
    """All of it but `enrol`, which takes the place of two other keys."""
    return re.sub(r"(?ms)^enrol:.*?(?=^[#\w])", "", whole())


def load(folder: Path, text: str) -> SidecarSettings:
    (folder / "sidecar.yaml").write_text(text)
    return read(folder / "sidecar.yaml", {}, "host-1")


def places(tree: dict[str, Any], within: str = "") -> Iterator[tuple[str, dict[str, Any], str]]:
    """Each key of a file: as `keys()` names it, the mapping that holds it, and its last level."""
    for key, value in tree.items():
        name = f"{within}{key}"
        yield name, tree, key
        if name in CHOSEN:
            continue
        below = value.values() if name == "sources.names" else value
        for each in below if isinstance(below, (list, type({}.values()))) else [below]:
            if isinstance(each, dict):
                yield from places(each, f"{name}.")


def without(tree: dict[str, Any], name: str) -> str:
    """The file, wherever it has it, without the key of this name."""
    copied = copy.deepcopy(tree)
    for each, parent, key in list(places(copied)):
        if each == name:
            del parent[key]
    return yaml.safe_dump(copied)


def test_the_example_has_every_key_and_its_sentence() -> None:
    tree = yaml.safe_load(whole())
    declared = dict(keys())
    assert {name for name, _, _ in places(tree)} == {*declared}
    # A sentence is broken over lines, each with the `#` of the comment.
    prose = " ".join(re.sub(r"^[ #]+", "", line) for line in EXAMPLE.read_text().splitlines())
    assert not [key for key, sentence in declared.items() if sentence not in prose]


def test_the_example_is_valid_unchanged_and_with_every_key_in_force(folder: Path) -> None:
    assert len(load(folder, EXAMPLE.read_text()).sources) == 1
    assert len(load(folder, configured()).sources) == 6
    enrolling = yaml.safe_load(whole())
    for key in ("key_file", "agent", "agent_file"):
        del enrolling[key]
    enrolling["least_documents"] = "off"
    assert load(folder, yaml.safe_dump(enrolling)).enrol is not None


def test_optional_keys_of_the_example_are_set_to_their_defaults(folder: Path) -> None:
    text = EXAMPLE.read_text()
    full, tree = load(folder, text), yaml.safe_load(text)
    optional = {name for name, _, _ in places(tree)} - REQUIRED - {"agent", "sources"}
    assert {"spool.mode", "sources.writes", "staleness_seconds"} <= optional
    for name in optional:
        assert load(folder, without(tree, name)) == full, name


def test_the_help_marks_exactly_the_required_keys() -> None:
    def needed(form: Any, within: str = "") -> set[str]:
        if isinstance(form, list):
            return set().union(*(needed(each, within) for each in form))
        if not isinstance(form, dict):
            return set()
        found = {within + key for key in form.get("required", ())}
        for word in ("anyOf", "items", "additionalProperties", "else"):
            found |= needed(form.get(word), within)
        for key, each in form.get("properties", {}).items():
            found |= needed(each, f"{within}{key}.")
        return found

    # Unless another way leads to the source, which a schema can't say.
    assert needed(settings_schema()) == REQUIRED - {"sources.listen"}


@pytest.mark.deep(stands_in="test_the_help_marks_exactly_the_required_keys")
def test_the_required_keys_are_those_that_the_reader_demands(folder: Path) -> None:
    tree = yaml.safe_load(configured())
    for way in ("forward_proxy", "transparent"):
        del tree[way]  # either leads to a source without `listen`
    # Optional, but with conditions of their own: an agent and its sources, a pair of files, a
    # door's source and its TLS.
    others = {"agent", "sources", "doors.listen", *PAIRS}
    for name in {name for name, _, _ in places(tree)} - others:
        if name in REQUIRED:
            with pytest.raises(SettingsError, match=rf"{name.rpartition('.')[2]}.*is required"):
                load(folder, without(tree, name))
        else:
            load(folder, without(tree, name))


def sidecar(*arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "deploy.command", "sidecar", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env=environ(**more), timeout=60, check=False
    )


def test_the_help_lists_each_key_with_its_default_and_description(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run_main(monkeypatch, "--help")
    assert ended.value.code == 0
    _tells_each_key(capsys.readouterr().out)


@pytest.mark.deep(stands_in="test_the_help_lists_each_key_with_its_default_and_description")
def test_help_lists_every_key_with_its_default_and_sentence() -> None:
    answer = sidecar("--help")
    assert answer.returncode == 0
    _tells_each_key(answer.stdout)


def _tells_each_key(output: str) -> None:
    told = " ".join(output.split())
    for key, sentence in keys():
        assert re.search(rf"^  {re.escape(key)}  \[\S.*\]$", output, re.MULTILINE), key
        assert sentence in told
    assert "  spool.mode  [durable]\n" in output
    assert "  control  [required]\n" in output
    assert "sluice sidecar --example" in output


def test_the_example_is_printed_to_its_last_byte(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(monkeypatch, "--example") == 0
    assert capsys.readouterr().out == EXAMPLE.read_text()


def test_the_minimal_example_is_ten_valid_lines(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(monkeypatch, "--example", "minimal") == 0
    text = capsys.readouterr().out
    assert len([line for line in text.splitlines() if not line.startswith("#")]) == 10
    path = folder / "sidecar.yaml"
    path.write_text(text)
    assert run_main(monkeypatch, "--check", "--config", str(path)) == 0
    assert " 1 source, would listen on 127.0.0.1:8720, 127.0.0.1:18720" in capsys.readouterr().out
    # With the address that the other commands take from the environment, and nothing else changed.
    url = "https://control.example:8700/sluice"
    assert run_main(monkeypatch, "--example", "minimal", SLUICE_URL=url) == 0
    filled = capsys.readouterr().out
    assert f"control: {url}" in filled
    shown = "http://127.0.0.1:8700       "
    assert filled.replace(url, shown) == text
    # So is the authority of an https address, by a path that holds wherever the file is put.
    environ = {"SLUICE_CA": "ca: 1.pem"}
    assert run_main(monkeypatch, "--example", "minimal", SLUICE_URL=url, **environ) == 0
    known = capsys.readouterr().out
    assert yaml.safe_load(known)["control_tls"] == {"ca": str(Path("ca: 1.pem").absolute())}
    assert re.sub(r"control_tls: .*\n", "", known) == filled
    plain = {"SLUICE_URL": shown.strip(), **environ}
    assert run_main(monkeypatch, "--example", "minimal", **plain) == 0
    assert capsys.readouterr().out == text
    # Whose Chroma it is, and where.
    other = "https://chroma.example:8443"
    assert run_main(monkeypatch, "--example", "minimal", "--upstream", other) == 0
    elsewhere = capsys.readouterr().out
    assert yaml.safe_load(elsewhere)["sources"][0]["upstream"] == other
    assert elsewhere.replace(f"{other} #", "http://127.0.0.1:8000   #") == text
    # What is commented out holds the defaults, as it says.
    spool = yaml.safe_load(re.findall(r"(?m)^#(spool: .*)$", text)[0])["spool"]
    defaults = yaml.safe_load(EXAMPLE.read_text())["spool"]
    assert spool == {name: defaults[name] for name in spool}


@pytest.mark.parametrize("url", ["control.example:8700", "http://control:", "http://a: b", "a\nb"])
def test_the_minimal_example_refuses_an_address_that_it_can_t_contain(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert run_main(monkeypatch, "--example", "minimal", SLUICE_URL=url) == 2
    assert caplog.messages[0].startswith("SLUICE_URL: ")
    caplog.clear()
    assert run_main(monkeypatch, "--example", "minimal", "--upstream", url) == 2
    assert caplog.messages[0].startswith("--upstream: ")
    with pytest.raises(SystemExit, match="2"):
        run_main(monkeypatch, "--example", "--upstream", "http://127.0.0.1:8001")


@pytest.mark.deep(stands_in="test_the_example_is_printed_to_its_last_byte")
def test_the_example_is_printed_unchanged() -> None:
    answer = sidecar("--example")
    assert answer.returncode == 0
    assert answer.stdout == EXAMPLE.read_text()


def test_a_check_of_a_usable_file_prints_its_addresses_and_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "sidecar.yaml"
    path.write_text(configured())
    before = {each.name for each in folder.iterdir()}
    elsewhere = {"SLUICE_SIDECAR_LISTEN": "127.0.0.1:9999"}
    assert run_main(monkeypatch, "--check", "--config", str(path), **elsewhere) == 0
    output, errors = capsys.readouterr()
    assert output.startswith(f"{path}: valid: sidecar `sidecar-1`, ")
    first, *ports = output.splitlines()
    assert errors == ""
    assert "127.0.0.1:9999" in first
    serves = "decisions, with a key; health without one, by TLS"
    assert ports[0] == f"  127.0.0.1:9999: `listen`: {serves}"
    named = [line.split(": ")[1] for line in ports]
    assert {"`metrics_listen`", "`quit_listen`", "`forward_proxy`", "`transparent`"} < set(named)
    assert (
        "  127.0.0.1:18000: source `kb`: chroma at http://127.0.0.1:8000, without a key, by TLS"
        in ports
    )
    assert [each for each in named if each.startswith("door `")]
    assert {each.name for each in folder.iterdir()} == before


@pytest.mark.deep(stands_in="test_a_check_of_a_usable_file_prints_its_addresses_and_leaves_nothing")
def test_a_check_of_a_usable_file_lists_its_ports_and_leaves_nothing(folder: Path) -> None:
    path = folder / "sidecar.yaml"
    path.write_text(configured())
    before = {each.name for each in folder.iterdir()}
    answer = sidecar("--check", "--config", str(path), SLUICE_SIDECAR_LISTEN="127.0.0.1:9999")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.startswith(f"{path}: valid: sidecar `sidecar-1`, ")
    first, *ports = answer.stdout.splitlines()
    assert "127.0.0.1:9999" in first
    assert len(ports) > 4
    assert {each.name for each in folder.iterdir()} == before


def test_a_check_warns_of_a_password_that_others_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("sidecar.key", "agent.key"):
        (tmp_path / name).write_text(KEY)
    path = tmp_path / "sidecar.yaml"
    address = "redis://me:p4ssw0rd@127.0.0.1/0"
    text = EXAMPLES["minimal"].read_text()
    path.write_text(f"{text}\nredis: {address}\n")
    for mode, warned in ((0o644, True), (0o600, False)):
        path.chmod(mode)
        assert run_main(monkeypatch, "--check", "--config", str(path)) == 0
        output, errors = capsys.readouterr()
        assert errors.startswith(f"{path}: warning: other users can read") is warned
        assert "p4ssw0rd" not in output + errors
    # What the environment gives is not in the file.
    path.write_text(text)
    path.chmod(0o644)
    given = {"SLUICE_SIDECAR_REDIS": address}
    assert run_main(monkeypatch, "--check", "--config", str(path), **given) == 0
    assert capsys.readouterr().err == ""


def test_a_check_warns_of_a_spool_that_takes_no_new_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, spool = folder / "sidecar.yaml", folder / "spool"
    path.write_text(f"{EXAMPLES['minimal'].read_text()}\nspool: {{dir: {spool}}}\n")
    path.chmod(0o600)
    asked: list[Path] = []
    monkeypatch.setattr("sidecar.__main__.takes_new_files", asked.append)  # None, so it does not
    # A start makes the directory.
    assert run_main(monkeypatch, "--check", "--config", str(path)) == 0
    assert (capsys.readouterr().err, asked) == ("", [])
    spool.mkdir()
    assert run_main(monkeypatch, "--check", "--config", str(path)) == 0
    assert asked == [spool]
    assert f"warning: this user can make no files in `spool.dir`, which is `{spool}`" in (
        capsys.readouterr().err
    )


def test_a_check_binds_no_port(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "sidecar.yaml"
    path.write_text(EXAMPLE.read_text())
    # Port 1 of an address that is not this machine's can't be bound, root or not.
    elsewhere = {"SLUICE_SIDECAR_LISTEN": "192.0.2.1:1"}
    assert run_main(monkeypatch, "--check", "--config", str(path), **elsewhere) == 0


@pytest.mark.deep(stands_in="test_a_check_binds_no_port")
def test_a_check_opens_no_port(folder: Path) -> None:
    path = folder / "sidecar.yaml"
    path.write_text(EXAMPLE.read_text())
    # Port 1 of an address that is not this machine's can't be bound, root or not.
    answer = sidecar("--check", "--config", str(path), SLUICE_SIDECAR_LISTEN="192.0.2.1:1")
    assert answer.returncode == 0, answer.stderr


def test_a_check_prints_every_fault_and_no_key(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = folder / "sidecar.yaml"
    text = EXAMPLE.read_text() + "redis: rediss://r:6379?ssl_ca_certs=gone\n"
    path.write_text(text.replace("mode: durable", "mode: fast"))
    (folder / "agent.key").write_text("no key")
    (folder / "sidecar.key").unlink()
    (folder / "sidecar.key").mkdir()
    wrong = {"SLUICE_SIDECAR_LISTEN": "nowhere"}
    assert run_main(monkeypatch, "--check", "--config", str(path), **wrong) == 2
    assert len(caplog.messages) == 5
    for fault in (
        "sidecar.key` can't be read: EISDIR (is a directory)", "agent.key_file: ", "redis: `ca` ",
        "spool.mode: ", "LISTEN: `nowhere` ",
    ):  # fmt: skip
        assert fault in caplog.text, fault
    assert "no key\n" not in caplog.text


@pytest.mark.deep(stands_in="test_a_check_prints_every_fault_and_no_key")
def test_a_check_of_an_unusable_file_names_everything_at_once(folder: Path) -> None:
    path = folder / "sidecar.yaml"
    text = configured().replace("mode: durable", "mode: fast").replace("crm.pem", "gone.pem")
    path.write_text(text.replace("redis://127.0.0.1:6379/0", "rediss://r:6379?ssl_ca_certs=gone"))
    (folder / "agent.key").write_text("no key")
    answer = sidecar("--check", "--config", str(path))
    assert answer.returncode == 2
    assert answer.stdout == ""
    for fault in ("spool.mode: ", "agent.key_file: ", "sources[1].terminate: ", "redis: `ca` "):
        assert fault in answer.stderr
    assert "no key\n" not in answer.stderr


def test_a_redis_s_certificates_are_relative_to_the_file_and_a_key_needs_one(folder: Path) -> None:
    text = EXAMPLE.read_text() + "redis: rediss://r:6379?"
    for ca in ("control-ca.pem", folder / "control-ca.pem"):
        url = load(folder, f"{text}ssl_ca_certs={ca}\n").redis
        assert url is not None
        assert url.options == (("ssl_ca_certs", str(folder / "control-ca.pem")),)
    with pytest.raises(SettingsError, match="`ssl_keyfile` needs an `ssl_certfile`"):
        load(folder, f"{text}ssl_keyfile=key.pem\n")


@pytest.mark.deep(stands_in="test_a_check_prints_every_fault_and_no_key")
def test_a_check_names_a_key_file_that_can_not_be_read(folder: Path) -> None:
    (folder / "agent.key").unlink()
    (folder / "agent.key").mkdir()
    (folder / "sidecar.yaml").write_text(EXAMPLE.read_text())
    answer = sidecar("--check", "--config", str(folder / "sidecar.yaml"))
    assert answer.returncode == 2
    assert "agent.key` can't be read: EISDIR (is a directory)" in answer.stderr
