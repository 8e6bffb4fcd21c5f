"""AWS's signature on what is about to be sent, with the sidecar's own credentials (data-sources.md
R9). An agent behind such a source holds none: whatever it sends as one is dropped.

botocore finds the credentials, renews them and signs; it is loaded when a source that needs it is
configured. Finding may ask a file, a process or the network, so it happens off the event loop.
Knows no operation of any service.
"""

import asyncio
import logging
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from policies.ground.errors import SluiceError, UpstreamFailed
from sidecar.protocols.messages import Fields, OutgoingRequest
from sidecar.protocols.shared.aws_query import parse_query
from sidecar.settings.model import Aws

log = logging.getLogger(__name__)

KEPT_SECONDS = 60.0
"""How long credentials are used before they are asked for again: botocore renews those that expire
some ten minutes ahead, and a file that was written anew is taken within this time."""

STREAMING = b"STREAMING-UNSIGNED-PAYLOAD-TRAILER"
"""The one framing of a streamed upload that holds no signature of the agent's."""

# What the agent signed with, in any spelling that a data source behind CGI would take for it.
_CREDENTIALS = frozenset(
    (
        b"authorization",
        b"date",
        b"x-amz-date",
        b"x-amz-content-sha256",
        b"x-amz-security-token",
        b"x-amz-s3session-token",
        b"x-amz-region-set",
    )
)
_SIGNED = frozenset((b"content-type", b"content-md5"))


class _Keys(NamedTuple):
    region: str
    frozen: Any
    until: float


class AwsSigner:
    """Signs for one service of AWS. `service` is its name in a signature's scope."""

    def __init__(self, aws: Aws, service: str, monotonic: Callable[[], float]) -> None:
        try:
            import_module("botocore.session")
        except ImportError as error:
            raise SluiceError(
                "this kind of source needs botocore: install Sluice as `sluice[aws]`"
            ) from error
        self._aws = aws
        self._service = service
        self._monotonic = monotonic
        self._session: Any = None
        self._keys: _Keys | None = None
        self._asking = asyncio.Lock()

    async def sign(self, outgoing: OutgoingRequest, passes: Callable[[bytes], bool]) -> Fields:
        """The fields to send: those of `outgoing` but for credentials and for `x-amz…` fields whose
        name, in lower case, `passes` refuses; and a signature over method, target, body, host and
        every `x-amz…` field. Raises `UpstreamFailed` where there are no credentials."""
        keys = await self._current()
        kept = [field for field in outgoing.fields if _kept(field[0].lower(), passes)]
        return kept + self._signature(outgoing, kept, keys)

    def _signature(self, outgoing: OutgoingRequest, kept: Fields, keys: _Keys) -> Fields:
        # Imported by now; the names are looked up here so that nobody else needs the library.
        auth, request_of = import_module("botocore.auth"), import_module("botocore.awsrequest")
        path, _, query = outgoing.target.partition("?")
        simple = self._service == "s3"
        if simple:
            # S3 reads the path decoded and writes it again in its own way; others take it as sent.
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
        added = set(request.headers.keys()) - before
        return [(name.encode(), request.headers[name].encode()) for name in sorted(added)]

    async def _current(self) -> _Keys:
        keys = self._keys
        if keys is not None and self._monotonic() < keys.until:
            return keys
        async with self._asking:
            # Somebody else may have asked meanwhile.
            if self._keys is None or self._monotonic() >= self._keys.until:
                self._keys = await asyncio.to_thread(self._found)
            return self._keys

    def _found(self) -> _Keys:
        """Blocks. Raises `UpstreamFailed`; what is at fault is in the log, and not the agent's to
        know."""
        failure = import_module("botocore.exceptions").BotoCoreError
        try:
            return self._asked_for()
        except (failure, OSError) as error:
            log.warning("AWS credentials can't be had: %s", error)
            raise UpstreamFailed("the sidecar's AWS credentials can't be had") from error

    def _asked_for(self) -> _Keys:
        renewing = import_module("botocore.credentials").RefreshableCredentials
        session = self._session
        found = None if session is None else session.get_credentials()
        if not isinstance(found, renewing):
            # Those that don't expire were read once: a file may have been written anew.
            session = import_module("botocore.session").Session(profile=self._aws.profile)
            if self._aws.credentials_file is not None:
                session.set_config_variable("credentials_file", str(self._aws.credentials_file))
            found = session.get_credentials()
        region = self._aws.region or session.get_config_variable("region")
        if found is None or not region:
            lacking = "credentials" if found is None else "region: set `aws.region`"
            log.warning("AWS: the source has no %s", lacking)
            raise UpstreamFailed("the sidecar's AWS credentials can't be had")
        self._session = session
        frozen = found.get_frozen_credentials()
        return _Keys(region, frozen, self._monotonic() + KEPT_SECONDS)


def _kept(name: bytes, passes: Callable[[bytes], bool]) -> bool:
    plain = name.replace(b"_", b"-")
    if plain in _CREDENTIALS:
        return False
    return not plain.startswith(b"x-amz") or (plain == name and passes(name))


def _payload(outgoing: OutgoingRequest, *, simple: bool) -> dict[str, Any]:
    """What botocore is told of the body: it signs a body at hand. One that still arrives goes
    unsigned, as AWS has it for streams; its checksum, where there is one, is the agent's."""
    if not simple or (outgoing.body is not None and not is_streaming(outgoing.fields)):
        return {}
    if is_streaming(outgoing.fields):
        return {"checksum": {"request_algorithm": {"in": "trailer"}}}
    config = import_module("botocore.config").Config(s3={"payload_signing_enabled": False})
    return {"client_config": config}


def is_streaming(fields: Fields) -> bool:
    """Whether the body has the framing of `STREAMING`."""
    return any(
        name.lower() == b"x-amz-content-sha256" and value == STREAMING for name, value in fields
    )
