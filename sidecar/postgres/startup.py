"""Answers an agent's first messages, up to its startup message or its CancelRequest.

    0x16                    TLS at once, for the protocol `postgresql` (ALPN)
    SSLRequest              `S` and TLS, or `N` where the port has no certificate; once
    GSSENCRequest           `N`; once
    CancelRequest           ends the phase: it names a process and its secret
    StartupMessage          ends the phase: the version, and the parameters by name

INVARIANT: nothing that arrived before a TLS handshake is read behind it (CVE-2021-23214): a machine
in the middle could have put it there.
"""

import asyncio
import ssl
from typing import NamedTuple

from sidecar.postgres import backend
from sidecar.postgres.agent import AgentConnection
from sidecar.postgres.backend import MOST_KEY_BYTES, BackendKey
from sidecar.postgres.frames import ProtocolFault
from sidecar.postgres.frontend import Password, parse
from sidecar.postgres.payload import PayloadReader, int32, message, text

ALPN = "postgresql"
VERSION_3_0, VERSION_3_2 = 3 << 16, (3 << 16) + 2
_CANCEL, _SSL, _GSS = ((1234 << 16) + each for each in (5678, 5679, 5680))
_TLS_HANDSHAKE = 0x16
_OPTION = b"_pq_."


class StartupRefused(ProtocolFault):
    """the agent asks for something that isn't spoken here"""

    sqlstate = "0A000"


class Startup(NamedTuple):
    """An agent's startup message."""

    version: int
    """The version that is spoken from here on: what the agent asked for, at most 3.2."""
    parameters: dict[bytes, bytes]
    """Every parameter by its name, `user` and `database` among them; options of the protocol are
    left out, since none is known."""


class CancelRequest(NamedTuple):
    """A wish to cancel the statement that the connection with this key runs."""

    key: BackendKey


async def receive_startup(
    agent: AgentConnection, context: ssl.SSLContext | None, seconds: float
) -> Startup | CancelRequest:
    """Return the agent's startup message, or its CancelRequest, once TLS is what it asked for.
    `context` is that of the port's certificate, made for the protocol `ALPN`; None if it has none.
    Raises `ProtocolFault`, `ConnectionLost`, and `TimeoutError` if it takes longer than
    `seconds`."""
    async with asyncio.timeout(seconds):
        if await agent.first_byte() == _TLS_HANDSHAKE:
            await _start_tls_at_once(agent, context, seconds)
        answered: set[int] = set()
        while True:
            payload = await agent.read_startup()
            code = int.from_bytes(payload[:4], "big")
            if code not in (_SSL, _GSS):
                break
            if len(payload) > 4 or code in answered or agent.tls:
                raise ProtocolFault("a request for encryption comes twice, or has a payload")
            if agent.pipelined:
                raise ProtocolFault("bytes arrived behind a request for encryption, unencrypted")
            answered.add(code)
            if code == _SSL and context is not None:
                agent.write(b"S")
                await agent.start_tls(context, seconds)
            else:
                agent.write(b"N")
    if code == _CANCEL:
        return _cancel_request(payload)
    return _startup(agent, payload)


async def receive_password(agent: AgentConnection, seconds: float) -> bytes:
    """Ask the agent for a password, which is an API key, and return it. Raises `StartupRefused` if
    others could read it on its way, `ProtocolFault`, `ConnectionLost` and `TimeoutError`."""
    if not agent.confidential:
        raise StartupRefused("an API key is taken over TLS only: connect with `sslmode=require`")
    agent.write(backend.AUTHENTICATION_CLEARTEXT)
    async with asyncio.timeout(seconds):
        frame = await agent.read()
    answer = parse(frame)
    # Nothing else may arrive before the agent is let in.
    assert isinstance(answer, Password)
    return answer.password


async def _start_tls_at_once(
    agent: AgentConnection, context: ssl.SSLContext | None, seconds: float
) -> None:
    if context is None:
        raise ProtocolFault("TLS arrived, and this port has no certificate")
    await agent.start_tls(context, seconds)
    # Without it, a browser's request for another service could be sent here (ALPACA).
    if agent.alpn != ALPN:
        raise ProtocolFault(f"TLS without an SSLRequest has to name the protocol `{ALPN}` (ALPN)")


def _cancel_request(payload: bytes) -> CancelRequest:
    reader = PayloadReader("CancelRequest", payload)
    reader.int32()
    process, secret = reader.int32(), reader.rest()
    if not 4 <= len(secret) <= MOST_KEY_BYTES:
        reader.fault(f"has a key of {len(secret)} bytes")
    return CancelRequest(BackendKey(process, secret))


def _startup(agent: AgentConnection, payload: bytes) -> Startup:
    reader = PayloadReader("StartupMessage", payload)
    major, minor = reader.int16(), reader.int16()
    if major != 3:
        raise StartupRefused(
            f"version {major}.{minor} of the protocol is not spoken here: use 3.0 to 3.2"
        )
    parameters: dict[bytes, bytes] = {}
    while name := reader.text():
        if name in parameters:
            reader.fault(f"has the parameter `{name.decode('utf-8', 'replace')}` twice")
        parameters[name] = reader.text()
    reader.end()
    if b"user" not in parameters:
        reader.fault("names no `user`")
    if b"replication" in parameters and parameters[b"replication"].lower() not in _NO:
        raise StartupRefused("replication is not served here")
    parameters.pop(b"replication", None)
    unknown = [each for each in parameters if each.startswith(_OPTION)]
    for each in unknown:
        del parameters[each]
    version = min((major << 16) + minor, VERSION_3_2)
    if unknown or minor > 2:
        agent.write(backend.negotiate_version(version, unknown))
    return Startup(version, parameters)


_NO = (b"false", b"off", b"no", b"0", b"f", b"n")

# --------------------------------------------------------------------------- what goes to a server

SSL_REQUEST = message(b"", int32(_SSL))


def startup_message(version: int, parameters: dict[bytes, bytes]) -> bytes:
    """Return a StartupMessage. Raises `ValueError` for a NUL in a parameter."""
    fields = [text(each) for pair in parameters.items() for each in pair]
    return message(b"", int32(version), *fields, b"\0")


def cancel_request(key: BackendKey) -> bytes:
    return message(b"", int32(_CANCEL), int32(key.process), key.secret)
