"""TLS to the database: `ssl=verify-full` in the URL, and the authority in `PGSSLROOTCERT`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import make_url

from control_api.database_limits import DatabaseLimits
from control_api.store.database import connect
from control_api.store.url import DatabaseUnreachable
from tests.support import pgbouncer
from tests.support.certificates import authority

LIMITS = DatabaseLimits(connections=1, pooled=True)


@pytest.fixture
def tls_url(postgresql_url: str) -> Iterator[str]:
    """PgBouncer speaks PostgreSQL's TLS: the PostgreSQL of the tests is built without it."""
    with pgbouncer.before(postgresql_url, tls=authority().issue("127.0.0.1")) as url:
        yield url


async def refused(url: str) -> str:
    with pytest.raises(DatabaseUnreachable) as caught:
        await connect(url, LIMITS)
    return str(caught.value)


async def test_a_database_is_verified_by_its_authority_and_its_name(
    tls_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{tls_url}?ssl=verify-full"
    monkeypatch.setenv("PGSSLROOTCERT", str(authority().path))
    database = await connect(url, LIMITS)
    await database.close()
    # The certificate is for another name: `verify-ca` would not see that.
    elsewhere = make_url(url).set(host="localhost").render_as_string(hide_password=False)
    assert "TLS: Hostname mismatch" in await refused(elsewhere)
    assert "SSL required" in await refused(f"{tls_url}?ssl=disable")
    monkeypatch.setenv("PGSSLROOTCERT", str(authority("another").path))
    assert "TLS: " in await refused(url)
    monkeypatch.setenv("PGSSLROOTCERT", "/absent/root.crt")
    assert "no such file" in await refused(url)
