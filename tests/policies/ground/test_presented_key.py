"""The key that a request presents in its two headers (`CONTRACT.md`, Authentication)."""

import pytest

from policies.ground.errors import Unauthorized
from policies.ground.keys import key_digest, make_key, presented_key

KEY, OTHER = make_key(b"a" * 32), make_key(b"b" * 32)


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR"])
def test_a_bearer_token_is_a_key(scheme: str) -> None:
    assert presented_key([], [f"{scheme} {KEY}"]) == KEY
    assert presented_key([], [f"{scheme}   {KEY} "]) == KEY
    assert presented_key([KEY], [f"{scheme} {KEY}"]) == KEY


def test_the_key_header_presents_the_key() -> None:
    assert presented_key([KEY], []) == KEY
    assert presented_key([], []) is None
    assert presented_key([""], []) == ""


@pytest.mark.parametrize(
    "other",
    ["Basic YTpi", KEY, "Bearertoken", f"Bearer\t{KEY}", f"Token {KEY}", "", f"Bearer:{KEY}"],
)
def test_another_scheme_presents_no_key(other: str) -> None:
    assert presented_key([], [other]) is None
    assert presented_key([KEY], [other]) == KEY
    assert presented_key([KEY], [other, other]) == KEY


@pytest.mark.parametrize("token", [OTHER, KEY[:-1], KEY + "x", KEY.upper(), "", f"a {KEY}"])
def test_two_keys_that_differ_are_refused(token: str) -> None:
    with pytest.raises(Unauthorized, match="different keys") as refused:
        presented_key([KEY], [f"Bearer {token}"])
    assert KEY not in str(refused.value)


@pytest.mark.parametrize(
    ("keys", "authorizations"),
    [
        ([KEY, KEY], []),
        ([KEY, OTHER], []),
        ([KEY, ""], []),
        ([], [f"Bearer {KEY}", f"Bearer {KEY}"]),
        ([], [f"Bearer {KEY}", "Basic YTpi"]),
    ],
)
def test_a_repeated_header_presents_no_valid_key(
    keys: list[str], authorizations: list[str]
) -> None:
    presented = presented_key(keys, authorizations)
    assert presented
    assert key_digest(presented) not in (key_digest(KEY), key_digest(OTHER))


def test_bytes_outside_utf_8_are_compared_like_others() -> None:
    assert presented_key(["\udcff"], ["Bearer \udcff"]) == "\udcff"
    with pytest.raises(Unauthorized):
        presented_key(["\udcff"], ["Bearer \udcfe"])
