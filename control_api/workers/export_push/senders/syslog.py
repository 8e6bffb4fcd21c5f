"""Sends decisions to a syslog receiver over TCP or TLS.

Syslog has no acknowledgement, and what TCP acknowledges has only reached the receiver's kernel. So
each turn has a connection of its own, which ends in an orderly way: we close our side, and the
receiver closes its own once it has read all, with TLS by a `close_notify`. A receiver that died
before resets the connection, closes it too early or without that; then everything of the connection
is sent again, over another.

What this can't see: a receiver that has closed in order and dies before it has stored everything.
"""

import socket
from functools import partial

from control_api.exports.formats import FORMATS
from control_api.security.export_targets import ExportTarget
from control_api.workers.export_push.senders.sender import TargetAway
from control_api.workers.export_push.senders.stream import Stream, open_stream
from control_api.workers.export_push.senders.syslog_message import framed_message
from control_api.workers.export_push.senders.target_tls import TargetTls


class SyslogSender:
    """The connection of the turn, opened when there is something to send."""

    def __init__(self, target: ExportTarget) -> None:
        self._target = target
        self._tls = TargetTls(target) if target.tls else None
        self._stream: Stream | None = None
        line = FORMATS[target.format].encode
        self.encode = partial(framed_message, hostname=socket.gethostname(), line=line)

    async def send(self, encoded: list[bytes]) -> int:
        try:
            if self._stream is None:
                tls = None if self._tls is None else await self._tls.context()
                host, port = self._target.host, self._target.port
                assert port is not None
                self._stream = await open_stream(host, port, tls)
            await self._stream.write(b"".join(encoded))
        except OSError as error:
            raise TargetAway(_reason(error)) from error
        return 0

    async def settle(self) -> None:
        if self._stream is None:
            return
        try:
            await self._stream.end(self._target.close_notify)
        except OSError as error:
            raise TargetAway(_reason(error)) from error
        self._stream.close()
        self._stream = None

    async def abandon(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def _reason(error: OSError) -> str:
    words = getattr(error, "verify_message", None) or getattr(error, "reason", None)
    words = words or error.strerror or str(error) or type(error).__name__
    return f"the connection failed: {words}"
