"""Who a person is in the log, what groups grant, and what a browser must bring back."""

from __future__ import annotations

import os
from typing import Any

import pytest

from control_api.security.console_settings import parse_group_grants
from control_api.signin.attempt import Attempt, SignInRefused, groups_of, log_name, shown

CLAIMS: dict[str, Any] = {"iss": "https://id.example.com", "sub": "0815"}


def test_a_person_is_named_by_a_readable_part_and_a_unique_one() -> None:
    digest = log_name(CLAIMS).partition("~")[2]
    assert len(digest) == 12
    assert log_name(CLAIMS) == f"oidc:~{digest}"
    verified = {"email": "ann@example.com", "email_verified": True, "preferred_username": "ann"}
    assert log_name({**CLAIMS, **verified}) == f"oidc:ann@example.com~{digest}"
    for claimed in (False, "true", 1, None):
        assert log_name({**CLAIMS, **verified, "email_verified": claimed}) == f"oidc:ann~{digest}"
    assert log_name({**CLAIMS, "preferred_username": ["ann"]}) == f"oidc:~{digest}"
    assert log_name({**CLAIMS, "preferred_username": "Jürgen"}) == f"oidc:Jürgen~{digest}"


def test_two_people_never_have_the_same_name() -> None:
    same = {"preferred_username": "ann"}
    others = (
        {**CLAIMS, "sub": "0816"},
        {**CLAIMS, "iss": "https://id.example.org"},
        {"iss": "https://id.example.com0", "sub": "815"},
    )
    names = {log_name({**each, **same}) for each in (CLAIMS, *others)}
    assert len(names) == 4
    # Not even if one chooses the other's name whole.
    chosen = log_name({**CLAIMS, "sub": "0817", "preferred_username": log_name(CLAIMS)})
    assert chosen != log_name(CLAIMS)
    assert chosen.count("~") == 1


@pytest.mark.parametrize(
    "username",
    ["superadmin", "disk", "enrolment", "system", "key_3nB7xGvQ2mT5kWc8LpR0aZ", "oidc:ann"],
)
def test_no_person_s_name_resembles_another_kind_of_name_in_the_log(username: str) -> None:
    name = log_name({**CLAIMS, "preferred_username": username})
    assert name.startswith("oidc:")
    assert name != username
    assert ":" not in name.removeprefix("oidc:")


def test_a_name_is_short_and_can_be_printed() -> None:
    for username in ("a" * 10_000, "ann\nERROR", "ann\x00", "ann\u202exe", "<script>", "a b"):
        name = log_name({**CLAIMS, "preferred_username": username})
        assert len(name) < 90
        assert not set(name) & set("\n\x00\u202e<> ")


def test_groups_are_a_list_of_texts() -> None:
    assert groups_of({"groups": ["a", "b", "a"]}, "groups") == frozenset({"a", "b"})
    assert groups_of({"groups": "a"}, "groups") == frozenset({"a"})
    assert groups_of({"groups": []}, "groups") == frozenset()
    assert groups_of({"https://x/groups": ["a"]}, "https://x/groups") == frozenset({"a"})
    assert groups_of({}, "groups") is None
    for wrong in (7, None, {"a": 1}, ["a", 7], [["a"]]):
        with pytest.raises(SignInRefused):
            groups_of({"groups": wrong}, "groups")
    with pytest.raises(SignInRefused, match="too many groups"):
        groups_of({"_claim_names": {"groups": "src1"}}, "groups")


def test_the_strongest_scope_of_each_tenant_counts() -> None:
    grants = parse_group_grants(
        "auditors=read@default, admins=admin@default, acme=admin@ten_acme, auditors=read@ten_acme,"
        " ops=superadmin,, cn=staff=read@default, others=read@default"
    )

    def found(*groups: str) -> list[tuple[str, str, str | None]]:
        return [(each.group, each.scope, each.tenant_id) for each in grants.strongest(groups)]

    auditor = [("auditors", "read", "default"), ("auditors", "read", "ten_acme")]
    assert found("auditors") == auditor
    assert found("others", "auditors") == auditor
    assert found("auditors", "admins") == [("admins", "admin", "default"), auditor[1]]
    assert found("acme", "auditors") == [auditor[0], ("acme", "admin", "ten_acme")]
    assert found("ops") == [("ops", "superadmin", None)]
    assert found("cn=staff") == [("cn=staff", "read", "default")]
    assert not found("staff", "Admins", "admins ", "")
    assert not found()


@pytest.mark.parametrize(
    "text",
    [
        "admins", "admins=", "=admin@default", "admins=admin", "admins=admin@",
        "admins=root@default", "admins=evaluate@default", "admins=sidecar@default",
        "admins=superadmin@default",
        "a=read@default,a=read@default", "a=read@x\x00",
    ],
)  # fmt: skip
def test_an_ambiguous_mapping_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="`"):
        parse_group_grants(text)


def test_an_attempt_is_restored_from_its_cookie_alone() -> None:
    began = Attempt.new(os.urandom, "/console/agents?status=approved&q=é", "ten_acme")
    came = Attempt.from_cookie(began.to_cookie())
    assert came == began
    other = Attempt.new(os.urandom)
    values = {began.state, began.nonce, began.verifier, began.secret, other.state, other.secret}
    assert len(values) == 6
    assert 43 <= len(began.verifier) <= 128
    assert began.secret not in repr(began)
    assert set(began.to_cookie()) <= set(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."
    )
    for value in (
        None, "", "..", "short..", "é" * 43 + "..", began.secret + ".", began.secret + "..a.b",
        began.secret + ".a.b", "a" * 9999,
    ):  # fmt: skip
        assert Attempt.from_cookie(value) is None
    # A long address is left out, so that the cookie is never refused for its size.
    assert Attempt.from_cookie(Attempt.new(os.urandom, "/" + "a" * 9999).to_cookie()) is not None


def test_a_text_of_the_provider_is_shown_shortened_on_one_line() -> None:
    assert shown("a\nb\x00c") == "a b c"
    assert len(shown("a" * 10_000)) == 201
