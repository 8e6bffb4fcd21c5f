"""What an author sees in an editor with `yaml-language-server`, from the files of `sluice policy
init` alone: completions, sentences, and where a mistake is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.commands.policy.__main__ import main
from tests.deploy.commands.policy.language_server import LanguageServer, language_server

LOANS = "default/lending/loans.yaml"
GUARDRAILS = "default/guardrails.yaml"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("init") / "policies"
    assert main(["init", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[LanguageServer]:
    with language_server(folder) as found:
        yield found


def test_the_samples_have_no_mistakes(server: LanguageServer, folder: Path) -> None:
    for path in sorted(folder.rglob("*.yaml")):
        assert server.open(path.parent, path.read_text())[1] == []


@pytest.mark.parametrize(
    ("file", "right", "wrong", "said"),
    [
        (LOANS, "max_sensitivity: high", "max_sensitivity: severe", "critical"),
        (LOANS, "denied_sources: [", "denied_source: [", "denied_source"),
        (LOANS, "[report, review]", "report", "array"),
        (LOANS, "session_ttl_minutes: 60", "session_ttl_minutes: 0", "minimum"),
        (GUARDRAILS, "levels: [critical]", "levels: []", "too few items"),
    ],
)
def test_a_mistake_is_shown_on_its_line(
    server: LanguageServer, folder: Path, file: str, right: str, wrong: str, said: str
) -> None:
    text = (folder / file).read_text()
    line = text[: text.index(right)].count("\n")
    _, found = server.open((folder / file).parent, text.replace(right, wrong, 1))
    told = [(each["range"]["start"]["line"], each["message"]) for each in found]
    assert any(at == line and said in message for at, message in told), told


def test_keys_and_values_are_completed(server: LanguageServer, folder: Path) -> None:
    lines = (folder / LOANS).read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if "max_sensitivity: high" in line)
    lines[at] = "    max_sensitivity: "
    lines.insert(at + 1, "    denied_t")
    uri, _ = server.open((folder / LOANS).parent, "\n".join(lines))

    def complete(line: int) -> dict[str, Any]:
        place = {"line": line, "character": len(lines[line])}
        found = server.request("textDocument/completion", textDocument={"uri": uri}, position=place)
        return {item["label"]: item for item in found["items"]}

    assert {"low", "medium", "high", "critical"} <= complete(at).keys()
    keys = complete(at + 1)
    assert "Tasks that it denies" in str(keys["denied_tasks"]["documentation"])


def test_a_key_is_explained(server: LanguageServer, folder: Path) -> None:
    text = (folder / LOANS).read_text()
    uri, _ = server.open((folder / LOANS).parent, text)
    place = {"line": text[: text.index("denied_sources")].count("\n"), "character": 6}
    found = server.request("textDocument/hover", textDocument={"uri": uri}, position=place)
    assert "may never read" in str(found["contents"])
