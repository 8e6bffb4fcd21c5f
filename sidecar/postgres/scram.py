"""Proves to a server that the password is known, and has the server prove the same: SCRAM-SHA-256
(RFC 5802, RFC 7677), bound to the TLS connection where there is one (`tls-server-end-point`,
RFC 5929), so that a machine in the middle can use nothing of what is said.

Knows the texts of the exchange. Knows no message that carries them.
"""

import asyncio
import ssl

from scramp import ScramClient, ScramException

_MOST_ITERATIONS = 1_000_000
"""The most rounds of hashing that a server may ask for: about 0.3 s of a thread."""
_PLAIN, _BOUND = "SCRAM-SHA-256", "SCRAM-SHA-256-PLUS"
# PostgreSQL takes the name from the startup message, and reads none here.
_USER = "*"


class ScramFailed(Exception):
    """the exchange with the server failed"""


class ScramExchange:
    """One exchange with a server that offers `mechanisms`, over TLS if `tls` is given. Every method
    raises `ScramFailed`."""

    def __init__(
        self, password: str, mechanisms: tuple[bytes, ...], tls: ssl.SSLObject | None
    ) -> None:
        offered = [each for each in (_PLAIN, _BOUND) if each.encode() in mechanisms]
        if tls is None:
            offered = [each for each in offered if each == _PLAIN]
        if not offered:
            raise ScramFailed("the server offers no SCRAM-SHA-256")
        # The client says that it could bind, so that the server notices if a machine in the middle
        # has removed SCRAM-SHA-256-PLUS from what it offers.
        binding = None if tls is None else ("tls-server-end-point", tls)
        try:
            self._client = ScramClient(offered, _USER, password, channel_binding=binding)
        except ScramException as error:
            raise ScramFailed(_reason(error)) from error

    @property
    def mechanism(self) -> str:
        """The mechanism that was chosen: the bound one where the server offers it over TLS."""
        name: str = self._client.mechanism_name
        return name

    def begin(self) -> bytes:
        """Return the first text to the server."""
        first: str = self._client.get_client_first()
        return first.encode()

    async def prove(self, server_first: bytes) -> bytes:
        """Return the answer to the server's first text, with the proof."""
        try:
            self._client.set_server_first(server_first.decode())
            if int(self._client.iterations) > _MOST_ITERATIONS:
                raise ScramFailed(f"the server asks for more than {_MOST_ITERATIONS:,} iterations")
            # Thousands of rounds of a hash: other connections go on meanwhile.
            final: str = await asyncio.to_thread(self._client.get_client_final)
        except (ScramException, UnicodeDecodeError) as error:
            raise ScramFailed(_reason(error)) from error
        return final.encode()

    def verify(self, server_final: bytes) -> None:
        """Check the server's own proof."""
        try:
            self._client.set_server_final(server_final.decode())
        except (ScramException, UnicodeDecodeError) as error:
            raise ScramFailed(f"the server does not know the password: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, ScramException) else "a text is not UTF-8"
