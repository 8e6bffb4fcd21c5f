"""Pushes decisions to every target of `SLUICE_EXPORT_URLS`, each on its own: one that is away or
slow delays no other."""

import asyncio
import logging

from control_api.app_context import AppContext
from control_api.security.export_targets import ExportTarget, Protocol
from control_api.workers.export_push.senders.file import FileSender
from control_api.workers.export_push.senders.otlp import OtlpSender
from control_api.workers.export_push.senders.sender import Sender
from control_api.workers.export_push.senders.syslog import SyslogSender
from control_api.workers.export_push.target_loop import TargetLoop

DRAIN_SECONDS = 5.0
_log = logging.getLogger("sluice.exports")


class ExportPush:
    """The pushes of this process."""

    def __init__(self, app: AppContext) -> None:
        self._app = app
        self._ended = asyncio.Event()
        self._ended.set()

    async def run(self) -> None:
        """Runs as long as the app."""
        self._ended.clear()
        try:
            async with asyncio.TaskGroup() as group:
                for place, target in enumerate(self._app.settings.export_urls, 1):
                    loop = TargetLoop(self._app, target, place, _sender(target))
                    group.create_task(loop.run())
            await self._app.stopping.wait()
        finally:
            self._ended.set()

    async def ended(self) -> None:
        """Returns once the turns under way are acknowledged and saved, within a deadline: what is
        not saved is pushed again after the next start."""
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                await self._ended.wait()
        except TimeoutError:
            _log.warning("an export target did not answer before the end of the service")


def _sender(target: ExportTarget) -> Sender:
    match target.protocol:
        case Protocol.otlp:
            return OtlpSender(target)
        case Protocol.syslog:
            return SyslogSender(target)
        case Protocol.file:
            return FileSender(target)
