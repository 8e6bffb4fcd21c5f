"""Sessions of the console across replicas: two services on one PostgreSQL, and links that several
browsers use at once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier

import pytest

from tests.control_api.console.reader import Visitor
from tests.support import migrated
from tests.support.control_api import SUPERADMIN, ControlApi
from tests.support.postgres import serving
from tests.support.run_servers import SERVERS
from tests.support.waiting import until

BROWSERS = 6


@pytest.fixture(scope="module")
def replicas(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ControlApi, ControlApi]]:
    folder = tmp_path_factory.mktemp("replicas")
    with migrated.database(*pytestconfig.stash[SERVERS]) as url:
        first = ControlApi(folder, database_url=serving(url)).start()
        second = ControlApi(folder, policies=None, database_url=serving(url)).start()
        try:
            yield first, second
        finally:
            second.stop()
            first.stop()


def at(api: ControlApi, visitor: Visitor) -> Visitor:
    """The same browser, whose requests another replica gets."""
    other = Visitor(api)
    other.cookies = dict(visitor.cookies)
    return other


def is_signed_in(visitor: Visitor) -> bool:
    return visitor.get("/console/account", follow=False).status == 200


@pytest.mark.parametrize("scope", ["admin", "superadmin"])
def test_a_session_begins_at_one_replica_and_ends_at_the_other(
    replicas: tuple[ControlApi, ControlApi], scope: str
) -> None:
    one, two = replicas
    visitor = Visitor(one).sign_in(SUPERADMIN if scope == "superadmin" else one.admin_key)
    assert is_signed_in(at(two, visitor))
    # A form of a page that one has shown is taken by the other.
    account = visitor.get("/console/account")
    at(two, visitor).submit(account, "/console/sign-out")
    assert not is_signed_in(visitor)
    assert not is_signed_in(at(two, visitor))


def test_a_revoked_session_is_refused_at_once_everywhere(
    replicas: tuple[ControlApi, ControlApi],
) -> None:
    one, two = replicas
    for here, there in ((one, two), (two, one)):
        visitor = at(there, Visitor(here).sign_in(here.admin_key))
        assert is_signed_in(visitor)
        newest = here.admin("GET", "/v1/console/sessions?limit=1")[0]["session_id"]
        here.admin("DELETE", f"/v1/console/sessions/{newest}")
        assert not is_signed_in(visitor)


def test_sessions_of_a_key_end_with_it_at_every_replica(
    replicas: tuple[ControlApi, ControlApi],
) -> None:
    one, two = replicas
    made = one.admin("POST", "/v1/keys", {"name": "short", "scope": "read"})
    visitor = Visitor(one).sign_in(made["key"])
    assert is_signed_in(at(two, visitor))
    one.admin("DELETE", f"/v1/keys/{made['key_id']}")
    assert not is_signed_in(visitor)
    until("the other replica knows", lambda: not is_signed_in(at(two, visitor)))
    for each in replicas:  # and has been told: it need not wait for its next look
        until("it listens", partial(listens, each))


def listens(api: ControlApi) -> bool:
    """Whether it hears of changes that others make."""
    return b"\nsluice_change_notices 1.0\n" in api.call("GET", "/metrics").raw


@pytest.mark.deep(
    stands_in="tests/control_api/console/test_sign_in.py::test_a_link_that_another_browser_uses_meanwhile_is_refused"
)
def test_only_one_of_several_browsers_gets_in_by_one_link(
    replicas: tuple[ControlApi, ControlApi], api: ControlApi
) -> None:
    for services in (replicas, (api, api)):
        url = services[0].admin("POST", "/v1/console/sign-in-links")["url"]
        code, start = url.partition("#code=")[2], Barrier(BROWSERS)

        def use(
            browser: Visitor, start: Barrier = start, code: str = code
        ) -> tuple[int, dict[str, str]]:
            start.wait()
            shown = browser.post("/console/sign-in/link", {"code": code}, follow=False)
            return shown.status, browser.cookies

        browsers = [Visitor(services[number % 2]) for number in range(BROWSERS)]
        with ThreadPoolExecutor(BROWSERS) as pool:
            came = list(pool.map(use, browsers))
        assert sorted(status for status, _ in came) == [303, *[403] * (BROWSERS - 1)]
        assert all(bool(cookies) == (status == 303) for status, cookies in came)
