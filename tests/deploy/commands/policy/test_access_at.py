"""`sluice policy who SOURCE --at TIME`: by the versions of then, and what is proven of them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.commands.policy.__main__ import main
from deploy.commands.policy.service import prove, read_keys
from deploy.commands.policy.sources import Unusable
from policies.ground.canonical import rfc3339
from policies.ground.process.api_client import ControlApiClient
from policies.trail.proofs.signed_note import COSIGNATURE, ED25519, VerifierKey
from tests.support.control_api import ControlApi, running_control_api
from tests.support.waiting import until

BODY = {
    "name": "reads",
    "agent_role": "support",
    "allowed_sources": ["kb-*"],
    "denied_sources": [],
    "max_sensitivity": "high",
}
Capture = pytest.CaptureFixture[str]


class Past:
    """A policy that was made, narrowed and deleted, with a time between each two."""

    def __init__(self, api: ControlApi, directory: Path) -> None:
        self.api, self.directory = api, directory
        key = directory / "read.key"
        key.write_text(api.new_key("read"))
        key.chmod(0o600)
        self.words = ["--url", f"http://127.0.0.1:{api.port}", "--key-file", str(key)]
        self.before = self._time()
        made = api.admin("POST", "/v1/policies", BODY)
        self.path = f"/v1/policies/{made['policy_id']}"
        self.made = self._time()
        api.admin("PUT", self.path, {**BODY, "denied_sources": ["kb-secret"]})
        self.narrowed = self._time()
        api.admin("DELETE", self.path)
        self.deleted = self._time()
        newest = api.admin("GET", "/v1/audit/changes?limit=1")[0]
        proof = f"/v1/audit/proof/{newest['event_id']}"
        until("a checkpoint", lambda: api.call("GET", proof).status == 200)

    def _time(self) -> str:
        """A time after the last entry and before the next one."""
        newest: list[dict[str, Any]] = self.api.admin("GET", "/v1/audit/changes?limit=1")
        return str(newest[0]["timestamp"]) if newest else rfc3339(0)


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    directory = tmp_path_factory.mktemp("past")
    with running_control_api(directory) as api:
        yield Past(api, directory)


def who(past: Past, capsys: Capture, source: str, at: str, *words: str, code: int = 0) -> Any:
    assert main(["who", source, "--at", at, *past.words, "--json", *words]) == code
    return json.loads(capsys.readouterr().out)


def test_a_question_about_the_past_is_answered_by_the_version_of_that_time(
    past: Past, capsys: Capture
) -> None:
    at_first = who(past, capsys, "kb-secret", past.made)
    assert [row["agent_role"] for row in at_first["rows"]] == ["support"]
    (version,) = at_first["versions"]
    assert (version["policy_name"], version["version"], version["proven"]) == ("reads", 1, True)
    assert version["since"] == past.made
    assert version["checkpoint_size"] > version["seq"]
    assert who(past, capsys, "kb-secret", past.narrowed)["rows"] == []
    (version,) = who(past, capsys, "kb-1", past.narrowed)["versions"]
    assert (version["version"], version["since"]) == (2, past.narrowed)
    for at in (past.before, past.deleted):
        assert who(past, capsys, "kb-1", at)["versions"] == []


def test_a_time_before_the_log_is_refused(past: Past, capsys: Capture) -> None:
    assert main(["who", "kb-1", "--at", "2026-01-01", *past.words]) == 2
    oldest = past.api.admin("GET", "/v1/audit/changes")[-1]["timestamp"]
    said = capsys.readouterr().err
    assert f"the audit trail begins at {oldest}: nothing is known of before" in said


def test_a_private_key_is_recognised_and_never_shown(
    past: Past, capsys: Capture, tmp_path: Path
) -> None:
    seed = (past.directory / "data" / "log.key").read_text().split()[0]
    rotated = tmp_path / "rotated.key"
    rotated.write_text(f'{seed}\n{{"from":"a"}}\n')
    for given in (seed, str(rotated)):
        assert main(["who", "kb-1", "--at", past.made, *past.words, "--log-key", given]) == 2
        said = capsys.readouterr()
        assert "the key given is the log's private key" in said.err
        assert seed not in said.out + said.err


def test_the_answer_names_the_version_its_time_and_its_key(
    past: Past, capsys: Capture, tmp_path: Path
) -> None:
    assert main(["who", "kb-1", "--at", past.made, *past.words]) == 0
    said = capsys.readouterr()
    assert "`support` may read" in said.out
    assert f"`reads` version 1, since {past.made}, by key_" in said.out
    assert "proven by entry" in said.out
    assert "checked with the key that the service names" in said.err
    public = tmp_path / "log.pub"
    public.write_text(past.api.admin("GET", "/v1/audit/log-keys")["log_key"] + "\n")
    assert main(["who", "kb-1", "--at", past.deleted, *past.words]) == 0
    empty = f"At {past.deleted}, no one could read `kb-1` by the policies in force\n"
    assert capsys.readouterr().out == empty
    assert main(["who", "kb-1", "--at", past.made, *past.words, "--log-key", str(public)]) == 0
    assert "checked with the key given" in capsys.readouterr().err
    stranger = base64.b64encode(bytes(range(32))).decode()
    (version,) = who(past, capsys, "kb-1", past.made, "--log-key", stranger, code=1)["versions"]
    assert (version["proven"], version["version"]) == (False, None)
    assert "not signed by the log's key" in version["why_not"]


def test_a_public_key_is_read_in_every_form_of_its_base64(past: Past, tmp_path: Path) -> None:
    api = ControlApiClient(past.words[1], Path(past.words[3]).read_text())
    # As many `+` as a verifier key has.
    raw = bytes([0xFB, 0xEF, 0xBE]) * 10 + bytes(2)
    text = base64.b64encode(raw).decode()
    assert text.count("+") > 2
    named = VerifierKey("sluice.example/a", ED25519, raw)
    file = tmp_path / "log.pub"
    for form in (text, named.text(), f"{text}\n"):
        file.write_text(form)
        for given in (form.strip(), str(file)):
            assert read_keys(api, given).publics >= {raw}, given
    with pytest.raises(Unusable, match="neither a public key"):
        read_keys(api, VerifierKey("sluice.example/a", COSIGNATURE, raw).text())


def test_a_policy_that_differs_from_its_entry_in_the_log_is_not_proven(past: Past) -> None:
    api = ControlApiClient(past.words[1], Path(past.words[3]).read_text())
    changes = past.api.admin("GET", "/v1/audit/changes?object_type=policy")
    made = next(each for each in changes if each["timestamp"] == past.made)
    keys = read_keys(api, None)
    assert prove(api, keys, made, made["after"]).why is None
    wider = {**made["after"], "max_sensitivity": "critical"}
    assert prove(api, keys, made, wider).why == "the policy is not the one that its entry recorded"
    other = {**made, "object_id": "pol_other"}
    assert "of another change" in str(prove(api, keys, other, made["after"]).why)


def test_a_change_whose_policy_is_not_known_is_never_taken_for_a_deletion(
    past: Past, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A history that was altered: the service shows no body for it."""
    pages = ControlApiClient.pages

    def altered(
        api: ControlApiClient, path: str, query: dict[str, str | None]
    ) -> Iterator[list[Any]]:
        for page in pages(api, path, query):
            yield [{**each, "after": None} if "after" in each else each for each in page]

    monkeypatch.setattr(ControlApiClient, "pages", altered)
    assert main(["who", "kb-1", "--at", past.made, *past.words]) == 2
    assert "is not known" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--at", "soon"], "--at: `soon` is not a time; expected how long ago"),
        (["--at", "2999-01-01"], "--at: `2999-01-01` is still to come"),
        (["--at", "1h", "--policies", "."], "--at asks a service"),
        (["--at", "1h", "--log-key", "nonsense"], "`sluice log-key` prints it"),
        (["--log-key", "k"], "--log-key belongs to --at"),
    ],
)
def test_unusable_arguments_of_at_exit_with_2(
    past: Past, capsys: Capture, words: list[str], said: str
) -> None:
    service = [] if "--policies" in words else past.words
    assert main(["who", "kb-1", *words, *service]) == 2
    assert said in capsys.readouterr().err
