"""Sign-in at a certified provider: npm's `oidc-provider`, as a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from control_api.signin.attempt import Attempt, ProviderUnavailable, SignInRefusal, SignInRefused
from tests.control_api.signin.real_provider import CLIENT, RealProvider, new_keys
from tests.control_api.signin.signing_in import REDIRECT, client_of
from tests.support.certificates import authority

ROOT = Path(__file__).parents[3]


def test_only_the_provider_modules_import_the_optional_libraries() -> None:
    """What needs it is imported late, by the assembly."""
    own = "provider|provider_answers"
    heavy = rf"authlib|joserfc|control_api\.signin\.({own})|control_api\.signin import .*({own})"
    importing = {
        file.name
        for file in (ROOT / "control_api").rglob("*.py")
        if re.search(rf"^(import|from) ({heavy})\b", file.read_text("utf-8"), re.M)
    }
    assert importing == {"provider.py", "provider_answers.py"}


@pytest.mark.deep(stands_in="test_only_the_provider_modules_import_the_optional_libraries")
def test_nothing_of_the_provider_is_imported_without_its_settings() -> None:
    """Authlib is an extra of the distribution."""
    script = (
        "import sys, control_api.serve; print('authlib' in sys.modules, 'jinja2' in sys.modules)"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, text=True
    )
    assert told.stdout.split() == ["False", "True"]


def refused(reason: SignInRefusal) -> pytest.RaisesExc[SignInRefused]:
    return pytest.RaisesExc(SignInRefused, check=lambda error: error.reason is reason)


async def test_a_person_signs_in_at_the_provider(provider: RealProvider) -> None:
    person = await client_of(provider.issuer).signed_in("ann")
    assert (person.issuer, person.subject) == (provider.issuer, "ann")
    assert person.name.startswith("oidc:ann@example.com~")
    assert person.groups == {"sluice-admins", "everyone"}


async def test_the_browser_is_sent_with_state_nonce_and_a_hashed_verifier(
    provider: RealProvider,
) -> None:
    attempt, url = await client_of(provider.issuer).begin()
    assert "code_challenge_method=S256" in url
    assert f"state={attempt.state}" in url
    assert f"nonce={attempt.nonce}" in url
    assert attempt.verifier not in url
    assert attempt.secret not in url
    assert "scope=openid+profile+email+groups" in url


async def test_an_answer_belongs_to_one_browser_and_one_attempt(provider: RealProvider) -> None:
    client = client_of(provider.issuer)
    attempt, answer = await client.answered("ann")
    other = Attempt.new(lambda n: b"\1" * n)
    for wrong in (None, other):
        with refused(SignInRefusal.state):
            await client.idp.person(answer, wrong)
    for state in ("", attempt.state[:-1], "é"):
        with refused(SignInRefusal.state):
            await client.idp.person({**answer, "state": state}, attempt)
    # The right browser's answer is still good: nothing above has spent the code.
    assert (await client.idp.person(answer, attempt)).subject == "ann"


async def test_a_sign_in_begun_at_one_replica_is_finished_by_another(
    provider: RealProvider,
) -> None:
    attempt, answer = await client_of(provider.issuer).answered("ann")
    brought = Attempt.from_cookie(attempt.to_cookie())
    other = client_of(provider.issuer)
    assert (await other.idp.person(answer, brought)).subject == "ann"


async def test_a_code_works_once(provider: RealProvider) -> None:
    client = client_of(provider.issuer)
    attempt, answer = await client.answered("ann")
    assert (await client.idp.person(answer, attempt)).subject == "ann"
    with refused(SignInRefusal.state):
        await client.idp.person(answer, attempt)
    # Another process of ours does not know that, but the provider does.
    with refused(SignInRefusal.code):
        await client_of(provider.issuer).idp.person(answer, attempt)


async def test_a_code_of_another_attempt_is_refused(provider: RealProvider) -> None:
    """Someone puts a victim's code into an answer to an attempt of their own."""
    client = client_of(provider.issuer)
    _, stolen = await client.answered("ann")
    attempt, _ = await client.begin()
    with refused(SignInRefusal.code):
        await client.idp.person({**stolen, "state": attempt.state}, attempt)


async def test_an_answer_of_another_issuer_is_refused(provider: RealProvider) -> None:
    client = client_of(provider.issuer)
    _, answer = await client.answered("ann")
    assert answer["iss"] == provider.issuer
    # This provider announces that it always names itself (RFC 9207), so without is wrong too.
    for issuer in ("https://evil.example.com", provider.issuer + "/", "", None):
        attempt, _ = await client.begin()
        changed = {"code": answer["code"], "state": attempt.state}
        with refused(SignInRefusal.issuer):
            await client.idp.person(changed | ({} if issuer is None else {"iss": issuer}), attempt)


async def test_an_error_of_the_provider_is_shown(provider: RealProvider) -> None:
    client = client_of(provider.issuer)

    async def answered(**changed: str) -> SignInRefused:
        attempt, _ = await client.begin()
        answer = {"state": attempt.state, "iss": provider.issuer, **changed}
        with pytest.raises(SignInRefused) as caught:
            await client.idp.person(answer, attempt)
        return caught.value

    told = await answered(error="access_denied", error_description="<b>no</b>\nway")
    assert told.message.endswith("the identity provider says `access_denied`: <b>no</b> way")
    for code in (None, "", "a" * 5000):
        found = await answered(**({} if code is None else {"code": code}))
        assert found.reason is SignInRefusal.code


async def test_a_service_whose_clock_is_far_off_refuses_the_sign_in(provider: RealProvider) -> None:
    client = client_of(provider.issuer)
    for seconds in (-120, 7200):
        client.time.ahead = seconds
        with refused(SignInRefusal.id_token):
            await client.signed_in("ann")
    client.time.ahead = 0
    assert (await client.signed_in("ann")).subject == "ann"


@pytest.mark.deep(
    stands_in="tests/control_api/signin/test_faults.py::test_userinfo_of_someone_else_is_refused"
)
async def test_groups_may_be_at_the_userinfo_endpoint_only(provider: RealProvider) -> None:
    provider.restart(inToken=False)
    try:
        person = await client_of(provider.issuer).signed_in("ann")
        assert "sluice-admins" in person.groups
        assert person.name.startswith("oidc:ann@example.com~")
        assert (await client_of(provider.issuer).signed_in("gil")).groups == frozenset()
    finally:
        provider.restart(inToken=True)


@pytest.mark.deep(
    stands_in="tests/control_api/signin/test_faults.py::test_the_next_key_may_have_the_name_of_the_one_before"
)
async def test_changed_keys_of_the_provider_are_accepted(provider: RealProvider) -> None:
    client = client_of(provider.issuer)
    assert (await client.signed_in("ann")).subject == "ann"
    before = provider.configuration["jwks"]
    provider.restart(jwks=new_keys())
    assert (await client.signed_in("ann")).subject == "ann"
    # Both at a time, as a provider does that changes over.
    later = new_keys()
    later["keys"] += before["keys"]
    provider.restart(jwks=later)
    assert (await client.signed_in("ann")).subject == "ann"


@pytest.mark.deep(
    stands_in="tests/control_api/signin/test_id_token.py::test_a_token_by_a_key_of_the_provider_is_accepted"
)
@pytest.mark.parametrize(
    ("kind", "algorithm"), [("RSA", "PS256"), ("EC", "ES256"), ("OKP", "EdDSA")]
)
async def test_another_signature_algorithm_of_the_provider_is_accepted(
    provider: RealProvider, kind: str, algorithm: str
) -> None:
    provider.add_client(REDIRECT, id_token_signed_response_alg=algorithm)
    provider.restart(jwks=new_keys("RSA", *([] if kind == "RSA" else [kind])))
    try:
        assert (await client_of(provider.issuer).signed_in("ann")).subject == "ann"
    finally:
        provider.add_client(REDIRECT)
        provider.restart()


@pytest.mark.deep(
    stands_in="tests/control_api/signin/test_id_token.py::test_the_public_key_is_no_secret_of_hmac"
)
async def test_a_provider_that_signs_by_the_client_s_secret_is_refused(
    provider: RealProvider,
) -> None:
    provider.add_client(REDIRECT, id_token_signed_response_alg="HS256")
    provider.restart()
    try:
        with refused(SignInRefusal.id_token):
            await client_of(provider.issuer).signed_in("ann")
    finally:
        provider.add_client(REDIRECT)
        provider.restart()


@pytest.mark.deep(
    stands_in="tests/control_api/signin/test_faults.py::test_a_public_client_names_itself_and_shows_no_secret"
)
async def test_the_service_may_be_a_public_client(provider: RealProvider) -> None:
    provider.add_client(REDIRECT, client_secret=None, token_endpoint_auth_method="none")
    del provider.configuration["clients"][0]["client_secret"]
    provider.restart()
    try:
        client = client_of(provider.issuer, client_secret=None)
        assert (await client.signed_in("ann")).subject == "ann"
    finally:
        provider.add_client(REDIRECT)
        provider.restart()


async def test_a_wrong_secret_is_reported_without_the_secret(provider: RealProvider) -> None:
    with pytest.raises(ProviderUnavailable, match="invalid_client") as caught:
        await client_of(provider.issuer, client_secret="not the secret").signed_in("ann")
    assert "not the secret" not in caught.value.message
    assert "not the secret" not in repr(client_of(provider.issuer, client_secret="not the secret"))


async def test_the_provider_s_certificate_is_checked(tmp_path: Path) -> None:
    pair = authority("id").issue("localhost")
    made = RealProvider(tmp_path, tls=(pair.certificate, pair.key))
    made.ca = authority("id").path
    made.add_client(REDIRECT)
    made.start()
    try:
        client = client_of(made.issuer, authority("id").path)
        assert (await client.signed_in("ann")).subject == "ann"
        for other in (None, authority("another").path):
            with pytest.raises(ProviderUnavailable, match="can't be asked"):
                await client_of(made.issuer, other).begin()
    finally:
        made.stop()


async def test_signing_out_may_lead_to_the_provider(provider: RealProvider) -> None:
    url = await client_of(provider.issuer).idp.sign_out_url("http://127.0.0.1:8700/console/sign-in")
    assert url is not None
    assert url.startswith(f"{provider.issuer}/session/end?client_id={CLIENT}&")
    answer = client_of(provider.issuer).browser.get(url)
    assert answer.status_code == 200
