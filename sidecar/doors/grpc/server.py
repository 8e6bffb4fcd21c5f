"""Opens the port of a gRPC check door. Knows HTTP/2, TLS, the names of the two methods, and the
answer to a health check (`grpc.health.v1`). Knows no other message."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from policies.ground.addresses import EVERY, ListenAddress
from policies.ground.process.sockets import hosts_to_bind
from sidecar.doors.grpc.service import MAX_MESSAGE, CheckService
from sidecar.http.client.egress_guard import LoopGuard
from sidecar.http.grpc.wire import varint_field
from sidecar.proxy.downstream import BackgroundTasks
from sidecar.settings.sections import DoorTls

log = logging.getLogger(__name__)

_CHECK = "/envoy.service.auth.v3.Authorization/Check"
_HEALTH = "/grpc.health.v1.Health/Check"
_SERVING, _NOT_SERVING = varint_field(1, 1), varint_field(1, 2)

_OPTIONS = (
    ("grpc.max_concurrent_streams", 1000),
    # A body over 1 MiB is a denial, with its record and reason, and not a failed call. Gateways cut
    # a body at a limit of their own, so the message has room for little more than one and a head.
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    # A compressed call fails (UNIMPLEMENTED): grpcio inflates a whole message before it checks the
    # length, even for a caller without a key. No gateway compresses a check.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    # Gateways add trace headers to a call, and a call with too many of them fails.
    ("grpc.max_metadata_size", 64 << 10),
    ("grpc.absolute_max_metadata_size", 64 << 10),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # A gateway may send pings as often as we do.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    # Two sidecars that share a port would each get a part of the checks.
    ("grpc.so_reuseport", 0),
)


class GrpcServer(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio has no types
    """The listening port of a gRPC check door, whose checks `service` answers. `ready` returns
    whether the sidecar is ready."""

    def __init__(
        self,
        listen: ListenAddress,
        tls: DoorTls | None,
        service: CheckService,
        loop_guard: LoopGuard,
        ready: Callable[[], bool],
    ) -> None:
        self._listen = listen
        self._tls = tls
        self._service = service
        self._loop_guard = loop_guard
        self._ready = ready
        self._port = 0
        self._server: Any = None
        self._checks = BackgroundTasks()
        # Bytes in, bytes out: `check_request` and `check_response` know the messages.
        self._methods = {
            # Declared as a stream of one message, so that no message of a caller without a valid
            # key is ever held.
            _CHECK: grpc.stream_unary_rpc_method_handler(self._check),
            _HEALTH: grpc.unary_unary_rpc_method_handler(self._health),
        }

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of a call by its method's name; None makes grpcio answer
        UNIMPLEMENTED."""
        return self._methods.get(handler_call_details.method)

    async def start(self) -> None:
        """Open the port. Raises `OSError` if the port is taken."""
        self._server = grpc.aio.server(options=_OPTIONS)
        self._server.add_generic_rpc_handlers((self,))
        credentials = None if self._tls is None else server_credentials(self._tls)
        for host in hosts_to_bind(self._listen):
            address = str(ListenAddress(host, self._listen.port))
            try:
                self._port = (
                    self._server.add_insecure_port(address)
                    if credentials is None
                    else self._server.add_secure_port(address, credentials)
                )
            except RuntimeError as error:
                raise OSError(f"the port {address} can't be opened; is it taken?") from error
            # From now on no data source may lead back to this port.
            self._loop_guard.add_address(host, self._port)
        await self._server.start()

    @property
    def address(self) -> ListenAddress:
        """The listening address; for port 0, with the port that the system chose."""
        if self._listen.host == EVERY:
            return self._listen
        return ListenAddress(self._listen.host, self._port)

    async def close(self, seconds: float) -> None:
        """Stop accepting calls, give open checks `seconds` to finish, then end them."""
        if self._server is not None:
            await self._server.stop(seconds)
        await self._checks.close(seconds)

    async def _check(self, _messages: Any, context: Any) -> bytes:
        keys = [value for name, value in context.invocation_metadata() if name == "x-api-key"]
        refusal = self._service.refusal(keys)
        if refusal is not None:
            return refusal
        message = await context.read()
        if message is grpc.aio.EOF:
            # Missing, or larger than the limit. The call has failed then, and this is about to be
            # cancelled.
            message = None
        answers: list[bytes] = []
        on_left: list[Callable[[], None]] = []

        async def answer() -> None:
            answers.append(await self._service.check(message, keys, on_left.append))

        # A gateway that gives up does not cancel its check, since the record may be on the way to
        # disk; but then nothing more is looked up for it.
        try:
            await asyncio.shield(self._checks.run(answer()))
        except asyncio.CancelledError:
            for each in on_left:
                each()
            raise
        return answers[0]

    async def _health(self, _message: bytes, _context: Any) -> bytes:
        return _SERVING if self._ready() else _NOT_SERVING


def server_credentials(tls: DoorTls) -> Any:
    """Return the port's TLS credentials: its certificate, and the authorities that must have issued
    the clients' certificates. A changed file takes effect at the next handshake. Raises
    `OSError`."""
    required = tls.client_ca is not None
    held = _Files(tls)
    return grpc.dynamic_ssl_server_credentials(held.configuration(), held.changed, required)


class _Files:
    """The certificate files of a port, with their contents when they were last read."""

    def __init__(self, tls: DoorTls) -> None:
        self._paths = [tls.key, tls.certificate, *([tls.client_ca] if tls.client_ca else [])]
        self._texts = self._read()

    def configuration(self) -> Any:
        key, certificate, *authorities = self._texts
        return grpc.ssl_server_certificate_configuration(
            [(key, certificate)], authorities[0] if authorities else None
        )

    def changed(self) -> Any:
        """Return the new configuration; None if the files have not changed. Called for every
        handshake, on a thread of grpcio's."""
        try:
            texts = self._read()
            if texts != self._texts:
                self._texts = texts
                log.info("reloaded the certificate `%s`", self._paths[1])
                return self.configuration()
        except OSError as error:
            log.warning("keeping the previous certificate of `%s`: %s", self._paths[1], error)
        return None

    def _read(self) -> list[bytes]:
        return [Path(path).read_bytes() for path in self._paths]
