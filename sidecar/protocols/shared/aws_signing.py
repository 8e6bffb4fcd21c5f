"""Signs requests to AWS with the sidecar's own credentials (`protocols/RULES.md`, Signing for AWS),
which botocore finds and renews. The agent needs no credentials, and any that it sends are
dropped."""

import asyncio
import logging
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from policies.ground.distribution import how_to_install
from policies.ground.errors import SluiceError, UpstreamFailed
from sidecar.protocols.protocol import Fields, OutgoingRequest
from sidecar.protocols.shared.strict_queries import parse_query
from sidecar.settings.model import Aws

log = logging.getLogger(__name__)

# botocore renews expiring credentials some ten minutes ahead, so these never expire in between.
KEPT_SECONDS = 60.0
"""The seconds for which credentials are used before botocore is asked for them again. A changed
credentials file takes effect within this time."""

STREAMING = b"STREAMING-UNSIGNED-PAYLOAD-TRAILER"
"""The only value of `x-amz-content-sha256` for a streamed upload in whose framing the agent signs
nothing."""

# The fields of the agent's own signature. Names are compared with `_` as `-`, since a data source
# behind CGI can't tell the two apart.
_CREDENTIALS = frozenset((
    b"authorization", b"date", b"x-amz-date", b"x-amz-content-sha256", b"x-amz-security-token",
    b"x-amz-s3session-token", b"x-amz-region-set",
))  # fmt: skip
_SIGNED = frozenset((b"content-type", b"content-md5"))


class _Keys(NamedTuple):
    region: str
    frozen: Any
    until: float


class AwsSigner:
    """Signs requests to one AWS service. `service` is the service's name in the scope of the
    signature."""

    def __init__(self, aws: Aws, service: str, monotonic: Callable[[], float]) -> None:
        # botocore is large, so it is imported only for a source that needs it; and here rather than
        # at the first request, so that a sidecar without it does not start.
        try:
            import_module("botocore.session")
        except ImportError as error:
            why = f"this kind of source needs botocore; {how_to_install('aws')}"
            raise SluiceError(why) from error
        self._aws = aws
        self._service = service
        self._monotonic = monotonic
        self._session: Any = None
        self._keys: _Keys | None = None
        self._lookup = asyncio.Lock()

    async def sign(self, outgoing: OutgoingRequest, passes: Callable[[bytes], bool]) -> Fields:
        """Return the header fields to send: those of `outgoing`, plus a signature. Credentials are
        dropped, and `x-amz…` fields whose lower-case name `passes` rejects. The signature covers
        method, target, body, host, content type and MD5, and every `x-amz-…` field. Raises
        `UpstreamFailed` if there are no credentials."""
        keys = await self._current()
        kept = [field for field in outgoing.fields if _kept(field[0].lower(), passes)]
        return kept + self._signature(outgoing, kept, keys)

    def _signature(self, outgoing: OutgoingRequest, kept: Fields, keys: _Keys) -> Fields:
        auth, request_of = import_module("botocore.auth"), import_module("botocore.awsrequest")
        path, _, query = outgoing.target.partition("?")
        simple = self._service == "s3"
        if simple:
            # S3 decodes the path and encodes it in its own way; other services sign it as sent
            # (Signature Version 4, "canonical URI").
            path = quote(unquote_to_bytes(path), safe="/-._~")
        request = request_of.AWSRequest(
            method=outgoing.method,
            url=f"https://{outgoing.host}{path}",
            params=list(parse_query(query or None).items()),
            data=outgoing.body,
        )
        request.headers["Host"] = outgoing.host
        for name, value in kept:
            if name.lower() in _SIGNED or name.lower().startswith(b"x-amz-"):
                request.headers[name.decode()] = value.decode("latin-1")
        request.context.update(_payload(outgoing, simple=simple))
        before = set(request.headers.keys())
        signer = auth.S3SigV4Auth if simple else auth.SigV4Auth
        signer(keys.frozen, self._service, keys.region).add_auth(request)
        # Only the fields that botocore added are taken: the others go on as the agent wrote them.
        added = set(request.headers.keys()) - before
        return [(name.encode(), request.headers[name].encode()) for name in sorted(added)]

    async def _current(self) -> _Keys:
        keys = self._keys
        if keys is not None and self._monotonic() < keys.until:
            return keys
        # One look-up for all the requests that need credentials now.
        async with self._lookup:
            # Another request may have renewed them while this one waited for the lock.
            if self._keys is None or self._monotonic() >= self._keys.until:
                # Finding credentials may read a file, run a process or use the network.
                self._keys = await asyncio.to_thread(self._find)
            return self._keys

    def _find(self) -> _Keys:
        """Ask botocore for the credentials, which blocks. Raises `UpstreamFailed` if there are
        none."""
        failure = import_module("botocore.exceptions").BotoCoreError
        try:
            return self._from_botocore()
        except (failure, OSError) as error:
            # The cause may name files and roles, which are not the agent's to know.
            log.warning("can't get AWS credentials: %s", error)
            raise UpstreamFailed("the sidecar has no AWS credentials: see its log") from error

    def _from_botocore(self) -> _Keys:
        renewing = import_module("botocore.credentials").RefreshableCredentials
        session = self._session
        found = None if session is None else session.get_credentials()
        if not isinstance(found, renewing):
            # botocore reads credentials that don't expire only once, so a new session is needed to
            # notice a changed file.
            session = import_module("botocore.session").Session(profile=self._aws.profile)
            if self._aws.credentials_file is not None:
                session.set_config_variable("credentials_file", str(self._aws.credentials_file))
            found = session.get_credentials()
        region = self._aws.region or session.get_config_variable("region")
        if found is None or not region:
            missing = "credentials" if found is None else "region: set `aws.region`"
            log.warning("can't sign requests to AWS: the source has no %s", missing)
            raise UpstreamFailed("the sidecar has no AWS credentials: see its log")
        self._session = session
        return _Keys(region, found.get_frozen_credentials(), self._monotonic() + KEPT_SECONDS)


def _kept(name: bytes, passes: Callable[[bytes], bool]) -> bool:
    plain = name.replace(b"_", b"-")
    if plain in _CREDENTIALS:
        return False
    # `X_Amz_…` never passes: it would not be signed, yet a data source might read it.
    return not plain.startswith(b"x-amz") or (plain == name and passes(name))


def _payload(outgoing: OutgoingRequest, *, simple: bool) -> dict[str, Any]:
    """Return botocore's settings for the body. A complete body is signed. One that is still
    arriving is sent unsigned, as AWS allows for streams; its checksum, if any, is the agent's."""
    if not simple or (outgoing.body is not None and not is_streaming(outgoing.fields)):
        return {}
    if is_streaming(outgoing.fields):
        return {"checksum": {"request_algorithm": {"in": "trailer"}}}
    config = import_module("botocore.config").Config(s3={"payload_signing_enabled": False})
    return {"client_config": config}


def is_streaming(fields: Fields) -> bool:
    return (b"x-amz-content-sha256", STREAMING) in ((name.lower(), v) for name, v in fields)
