"""Fetches a key set: one GET to the address that the operator configured, and nowhere else."""

import asyncio
from pathlib import Path

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

from control_api.enrolment.key_set import MAX_BYTES
from control_api.security.cluster_tls import cluster_context
from control_api.security.issuers import Issuer
from policies.ground.os_errors import worded

CONNECT_SECONDS = 3.0
TOTAL_SECONDS = 5.0


class FetchFailed(Exception):
    """the key set can't be fetched or read"""


async def fetch(issuer: Issuer) -> bytes:
    """The bytes of the issuer's key set. Raises `FetchFailed`."""
    if issuer.file is not None:
        return await asyncio.to_thread(_read, issuer.file)
    try:
        return await _get(issuer)
    except TimeoutError:
        raise FetchFailed(f"no answer within {TOTAL_SECONDS:g} s") from None
    except (ClientError, OSError) as error:
        raise FetchFailed(str(error) or type(error).__name__) from error


async def _get(issuer: Issuer) -> bytes:
    headers = {"Accept": "application/jwk-set+json, application/json", "User-Agent": "sluice"}
    if issuer.token_file is not None:
        # Read each time: the kubelet replaces the token before it expires.
        token = await asyncio.to_thread(_read, issuer.token_file)
        headers["Authorization"] = f"Bearer {token.decode('ascii', 'replace').strip()}"
    tls = cluster_context(cafile=str(issuer.ca)) if issuer.ca else True
    # The operator chose this address, private or not, so it needs no entry in
    # SLUICE_WEBHOOK_ALLOW. No redirect and no proxy from the environment: both lead elsewhere, and
    # the key set decides which agents a caller can be.
    async with (
        ClientSession(
            connector=TCPConnector(ssl=tls, force_close=True, limit=1),
            cookie_jar=DummyCookieJar(),
            trust_env=False,
            timeout=ClientTimeout(total=TOTAL_SECONDS, sock_connect=CONNECT_SECONDS),
        ) as session,
        session.get(issuer.keys, headers=headers, allow_redirects=False) as answer,
    ):
        if answer.status != 200:
            raise FetchFailed(f"it answered {answer.status}")
        raw = b""
        while chunk := await answer.content.readany():
            raw += chunk
            if len(raw) > MAX_BYTES:
                raise FetchFailed(f"it has more than {MAX_BYTES} bytes")
        return raw


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise FetchFailed(f"`{path}` can't be read: {worded(error)}") from error
    if len(raw) > MAX_BYTES:
        raise FetchFailed(f"`{path}` has more than {MAX_BYTES} bytes")
    return raw
