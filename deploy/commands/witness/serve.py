"""Serves the witness, and counts its answers. At the start it locks its state, reads its key and
its last checkpoints, and then opens its port. At a stop it finishes the requests under way.

Two processes with the same key and different states could sign two versions of a log. Both the key
file and the state directory are therefore locked for as long as the process lives.

The labels of metrics come from closed sets, never from a log.
"""

import asyncio
import gc
import logging
import os
import re
import signal
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

from deploy.commands.witness.configuration import WitnessConfiguration
from deploy.commands.witness.witness import MAX_BODY, Memory, OtherSize, Submission, Witness
from policies import __version__
from policies.ground.addresses import ListenAddress
from policies.ground.canonical import b64, unb64
from policies.ground.clock import Clock
from policies.ground.errors import (
    Malformed,
    MethodNotAllowed,
    NotFound,
    SluiceError,
    TooLarge,
    worded,
)
from policies.ground.process import secret_file
from policies.ground.process.secret_file import UnusableFile
from policies.ground.process.small_server import HEADERS, Listener, Probes, error_response
from policies.ground.process.tls_files import RenewingContext
from policies.ground.signing import Signer


class Answer(StrEnum):
    """The kinds of answer to a submitted checkpoint, as the metric counts them."""

    cosigned = "cosigned"
    malformed = "malformed"
    """Status 400, 405 or 413: the request is not in the form of the protocol."""
    unsigned = "unsigned"
    """Status 403: the checkpoint is not signed by one of the log's keys."""
    unknown = "unknown"
    """Status 404: the log is not in the configuration."""
    conflict = "conflict"
    """Status 409: the log named another size than that of the checkpoint that was cosigned last.
    This is normal after a restart of the log."""
    inconsistent = "inconsistent"
    """Status 422: the log's key signed a checkpoint that does not continue the log. The operator
    must examine this."""
    failed = "failed"
    """Status 5xx: the state can't be written, or the disk is slow."""


BY_STATUS = {
    403: Answer.unsigned,
    404: Answer.unknown,
    409: Answer.conflict,
    422: Answer.inconsistent,
}


class WitnessMetrics:
    """All metrics of the process, registered with `registry`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        ProcessCollector(registry=registry)
        build = Gauge("sluice_build_info", "Always 1.", ["version"], registry=registry)
        build.labels(__version__).set(1)
        self.answers = Counter(
            "sluice_witness_answers_total",
            "Submitted checkpoints, by what became of them.",
            ("answer",),
            registry=registry,
        )
        for each in Answer:
            self.answers.labels(each)
        self.connections = Gauge(
            "sluice_witness_connections", "Open connections.", registry=registry
        )


_SEED = 32
_LOCK = "lock"


def load_signer(path: Path, *, make: bool) -> Signer:
    """Return the witness's private key from its file. If there is no file and `make` is set, create
    a new key and write it. Raises `UnusableFile`."""
    raw = secret_file.read(path)
    if raw is None:
        if not make:
            raise UnusableFile(
                f"`{path}` does not exist, but the state holds what its key signed: bring the key "
                "back, or begin as another witness with another `state`"
            )
        signer = Signer.generate()
        secret_file.write(path, b64(signer.seed()).encode() + b"\n")
        return signer
    try:
        seed = unb64(raw.decode("ascii").strip())
    except ValueError:
        seed = b""
    if len(seed) != _SEED:
        raise UnusableFile(f"`{path}` is not the base64 of {_SEED} bytes")
    return Signer(seed)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file inside the `with` block. The lock also ends if the process is killed.
    Raises `UnusableFile` if another process holds it."""
    try:
        handle = secret_file.acquire(path)
    except BlockingIOError as error:
        raise UnusableFile(f"`{path}` is in use by another witness process") from error
    except OSError as error:
        raise UnusableFile(f"`{path}` can't be opened: {worded(error)}") from error
    try:
        yield
    finally:
        os.close(handle)


@contextmanager
def locked_state(state: Path) -> Iterator[None]:
    """Create the state directory if it is absent, and hold its lock inside the `with` block."""
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UnusableFile(f"`{state}` can't be made: {worded(error)}") from error
    with locked(state / _LOCK):
        yield


BODY_SECONDS = 10.0
"""The seconds that a request's body may take to arrive."""
SIZE_TYPE = "text/x.tlog.size"
_TEXT = {**HEADERS, "Content-Type": "text/plain; charset=utf-8"}
_MONITORED = re.compile(r"/([0-9a-f]{64})/checkpoint\Z")
_log = logging.getLogger("sluice.witness")


class Submissions:
    """Handles the requests at the witness's port: submitted checkpoints, the public key, the last
    checkpoint of each log, and the probes."""

    def __init__(
        self, witness: Witness, metrics: WitnessMetrics, registry: CollectorRegistry
    ) -> None:
        self._witness = witness
        self._metrics = metrics
        self._probes = Probes(registry, lambda: "stopping" if self.stopping else None)
        self.stopping = False

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        path = request.raw_path.partition("?")[0]
        if path == "/add-checkpoint":
            return await self._submitted(request)
        found = _MONITORED.match(path)
        if path != "/key" and found is None:
            return await self._probes(request)
        if request.method not in ("GET", "HEAD"):
            return error_response(MethodNotAllowed())
        text = f"{self._witness.key.text()}\n" if found is None else self._witness.latest(found[1])
        if text is None:
            return error_response(NotFound("no checkpoint of such a log was cosigned"))
        return web.Response(text=text, headers=_TEXT)

    async def _submitted(self, request: web.BaseRequest) -> web.Response:
        """Answer a submitted checkpoint, and count the answer. Only answers that an operator should
        see are also logged."""
        try:
            if request.method != "POST":
                raise MethodNotAllowed
            submission = Submission.parse(await _body(request))
        except SluiceError as error:
            self._metrics.answers.labels(Answer.malformed).inc()
            return error_response(error)
        try:
            line = await self._witness.add(submission)
        except OtherSize as error:
            self._metrics.answers.labels(Answer.conflict).inc()
            headers = {**HEADERS, "Content-Type": SIZE_TYPE}
            return web.Response(status=error.status, body=b"%d\n" % error.size, headers=headers)
        except SluiceError as error:
            answer = BY_STATUS.get(error.status, Answer.failed)
            self._metrics.answers.labels(answer).inc()
            _report(answer, submission, error)
            return error_response(error)
        self._metrics.answers.labels(Answer.cosigned).inc()
        return web.Response(text=line.line(), headers=_TEXT)


def _report(answer: Answer, submission: Submission, error: SluiceError) -> None:
    """Log an answer if an operator should see it. Unknown and unsigned checkpoints are only
    counted, since anyone can submit such checkpoints and would fill the log."""
    if answer is Answer.inconsistent:
        # The log's own key signed it, so the note is proof, and is kept.
        _log.error("a log signed what does not continue it: %s: %r", error, submission.encode())
    elif answer is Answer.failed:
        _log.error("a checkpoint of `%s` is not cosigned: %s", submission.checkpoint.origin, error)


async def _body(request: web.BaseRequest) -> bytes:
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise Malformed("the body is compressed, which is not supported")
    pieces, length = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in request.content.iter_any():
                length += len(piece)
                if length > MAX_BODY:
                    raise TooLarge(f"the body is over the limit of {MAX_BODY} bytes")
                pieces.append(piece)
    except TimeoutError:
        raise Malformed(f"the body did not arrive within {BODY_SECONDS:.0f} s") from None
    except (ConnectionError, web.RequestPayloadError):
        raise Malformed("the body is cut short") from None
    return b"".join(pieces)


FINISH_SECONDS = 6.0
"""The seconds that requests under way may still take after a stop was requested."""


class Prepared(NamedTuple):
    """A witness that is ready to serve: it holds its locks, and its key and last checkpoints are
    loaded, but no port is open yet."""

    configuration: WitnessConfiguration
    witness: Witness
    tls: ssl.SSLContext | None


@contextmanager
def prepared(configuration: WitnessConfiguration, clock: Clock) -> Iterator[Prepared]:
    """Take the locks, load the key and the last checkpoints, and yield the witness; the locks are
    held inside the `with` block. Raises `UnusableFile` or `UnusableTls`."""
    tls = None if configuration.tls is None else RenewingContext.of(configuration.tls)
    with locked_state(configuration.state):
        memory = Memory(configuration.state)
        signer = load_signer(configuration.key_file, make=not len(memory))
        # A second configuration could name the same key with another state.
        with locked(configuration.key_file):
            witness = Witness(configuration.name, signer, configuration.logs, memory, clock.now)
            for origin in configuration.logs:
                if memory.get(origin) is None:
                    _log.warning("no checkpoint of log `%s` is known: its next begins it", origin)
            yield Prepared(configuration, witness, tls)


async def serve(prepared: Prepared, announce: Callable[[ListenAddress], None]) -> None:
    """Serve until SIGTERM or SIGINT. `announce` is called with the address once the port is open.
    Raises `CannotListen`."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    registry = CollectorRegistry()
    metrics = WitnessMetrics(registry)
    handler = Submissions(prepared.witness, metrics, registry)
    listener = await Listener.open(
        prepared.configuration.listen, "listen", handler, metrics.connections, prepared.tls
    )
    gc.collect()
    gc.freeze()
    announce(listener.address)
    await stop.wait()
    handler.stopping = True
    await listener.drain(FINISH_SECONDS)
