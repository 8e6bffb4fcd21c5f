"""Settings of a sidecar that enrols: from the environment, with sources from files that an operator
may or may not have written."""

from __future__ import annotations

from pathlib import Path

import pytest

from policies.ground.settings import SettingsError
from sidecar.config.file import read, read_variable
from sidecar.settings.model import EnrolSettings, SidecarSettings

TEXT = """\
control: http://127.0.0.1:8700
enrol: {token_file: /var/run/secrets/sluice/token}
sources_files: [account/sources.yaml, namespace/sources.yaml]
sources: [{alias: own, kind: rest, upstream: "http://a:1", listen: "127.0.0.1:2", sensitivity: low}]
"""
SOURCE = "{alias: %s, kind: rest, upstream: 'http://b:1', listen: '127.0.0.1:3', sensitivity: low}"


def load(base: Path, text: str = TEXT) -> SidecarSettings:
    (base / "sidecar.yaml").write_text(text)
    return read(base / "sidecar.yaml", {}, "pod-1")


def aliases(settings: SidecarSettings) -> list[str]:
    return [source.alias for source in settings.sources]


def write(base: Path, of: str, text: str) -> None:
    (base / of).mkdir(exist_ok=True)
    (base / of / "sources.yaml").write_text(text)


def complaints(base: Path, text: str = TEXT) -> str:
    with pytest.raises(SettingsError) as refused:
        load(base, text)
    return "\n".join(refused.value.complaints)


def test_a_sidecar_that_enrols_has_neither_key_nor_agent(base: Path) -> None:
    found = load(base)
    assert found.enrol == EnrolSettings(Path("/var/run/secrets/sluice/token"))
    assert (found.key_file, found.agent) == (None, None)
    assert aliases(found) == ["own"]
    for more in ("key_file: sidecar.key", "agent: {role: r, key_file: agent.key}"):
        assert "must be absent with `enrol`" in complaints(base, TEXT + more)
    assert "enrol.token_file: is required" in complaints(base, "control: http://a:1\nenrol: {}")
    assert "unknown key" in complaints(base, TEXT.replace("token_file", "token"))


REDIS = TEXT + "redis: redis://127.0.0.1:6379/0\n"


def test_redis_with_enrol_needs_the_choice_to_give_up_least_documents(base: Path) -> None:
    for text in (REDIS, REDIS + "least_documents: on\n"):
        found = complaints(base, text)
        assert "redis: can't be used with `enrol`" in found
        assert "`least_documents: off`" in found
    for word in ("off", "'off'"):
        assert load(base, REDIS + f"least_documents: {word}\n").least_documents == "off"
    assert (base / "sidecar.yaml").exists()
    variables = {"SLUICE_SIDECAR_LEAST_DOCUMENTS": "off"}
    assert read(base / "sidecar.yaml", variables, "pod-1").least_documents == "off"


def test_least_documents_can_be_given_up_only_for_redis_and_enrolment(base: Path) -> None:
    assert load(base).given_least_documents
    assert "`off` needs `enrol` and `redis`" in complaints(base, TEXT + "least_documents: off\n")
    assert "must be one of `on`, `off`, not `maybe`" in complaints(
        base, TEXT + "least_documents: maybe\n"
    )


def test_the_first_existing_sources_file_is_used(base: Path) -> None:
    write(base, "namespace", f"- {SOURCE % 'shared'}")
    assert aliases(load(base)) == ["shared"]
    write(base, "account", f"sources:\n  - {SOURCE % 'mine'}")
    assert aliases(load(base)) == ["mine"]
    # An empty list is a choice too: this account reads nothing.
    write(base, "account", "sources: []")
    assert aliases(load(base)) == []


def test_a_fault_names_its_file(base: Path) -> None:
    write(base, "account", f"- {SOURCE % 'A'}\n- {{alias: b}}")
    said = complaints(base)
    where = base / "account" / "sources.yaml"
    assert f"{where}:1: sources[0].alias" in said
    assert f"{where}:2: sources[1].kind" in said
    for broken in ("a: [", "", "text", "sources: {}", "other: []\nsources: []"):
        write(base, "account", broken)
        assert str(where) in complaints(base), broken


def test_an_inaccessible_sources_file_is_refused_with_a_message(base: Path) -> None:
    text = TEXT.replace("account/sources.yaml", "s" * 300)
    why = "can't be read: ENAMETOOLONG (file name too long)"
    assert complaints(base, text).endswith(f"{'s' * 300}: {why}")


def test_an_agent_that_reads_nothing_has_a_proxy_that_denies(base: Path) -> None:
    text = TEXT[: TEXT.index("sources:")] + "sources: []\nforward_proxy: 127.0.0.1:0\n"
    assert aliases(load(base, text)) == []
    # Without files that may bring some, it is a mistake.
    alone = "".join(line for line in text.splitlines(True) if "sources_files" not in line)
    assert "forward_proxy: leads to no source" in complaints(base, alone)


def test_a_file_completes_the_agent(base: Path) -> None:
    text = (
        "control: http://a:1\nkey_file: sidecar.key\nagent_file: agent.yaml\n"
        "agent: {key_file: agent.key, role: other}\n"
    )
    said = complaints(base, text)
    assert f"{base / 'agent.yaml'}: " in said
    assert "does not exist" in said
    (base / "agent.yaml").write_text("id: agt_loans\nrole: underwriter")
    agent = load(base, text).agent
    assert agent is not None
    assert (agent.id, agent.role, agent.key_file) == (
        "agt_loans",
        "underwriter",
        base / "agent.key",
    )
    for content, told in (
        ("- role", "must be a mapping with keys of `agent`"),
        ("role: [", ""),
        ("rôle: x", "unknown key"),
        ("role: ''\nid: 7", "YAML reads `7` as a number, so quote it"),
    ):
        (base / "agent.yaml").write_text(content)
        said = complaints(base, text)
        assert told in said
        assert str(base / "agent.yaml") in said or "unknown key" in said


def test_the_settings_may_be_in_the_environment(base: Path) -> None:
    environ = {"SLUICE_SIDECAR_SETTINGS": TEXT, "SLUICE_SIDECAR_ID": "loans-0"}
    found = read_variable("SLUICE_SIDECAR_SETTINGS", environ, "pod-1")
    assert (found.id, aliases(found)) == ("loans-0", ["own"])
    # JSON is YAML: a chart may write either.
    text = '{"control": "http://a:1", "enrol": {"token_file": "/t"}}'
    assert read_variable("ANY_NAME", {"ANY_NAME": text}, "h").control == "http://a:1"


@pytest.mark.parametrize("environ", [{}, {"S": ""}, {"S": " \n"}])
def test_settings_missing_from_the_environment_are_refused_with_a_message(
    environ: dict[str, str],
) -> None:
    with pytest.raises(SettingsError, match="not set in the environment, or empty"):
        read_variable("S", environ, "h")


def test_a_message_names_the_variable_and_the_line() -> None:
    with pytest.raises(SettingsError) as refused:
        read_variable("S", {"S": "control: http://a:1\nspol: {}"}, "h")
    said = refused.value.complaints
    assert any(each.startswith("S:2: spol: unknown key") for each in said)
