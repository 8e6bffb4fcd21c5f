"""Empties SQLite's write-ahead log after an erasure: it holds pages from before. Erases nothing
itself. If the process dies first, opening the database folds what is left of the WAL.
"""

import asyncio
import logging

from control_api.app_context import AppContext

GATHER_SECONDS = 5.0
"""Erasures within this time share a fold."""
RETRY_SECONDS = 1.0
LATE_SECONDS = 30.0
_log = logging.getLogger("sluice.erasure")


class WalFolding:
    """The loop that waits for `AppContext.erased`."""

    def __init__(self, app: AppContext) -> None:
        self._app = app

    async def run(self) -> None:
        """Runs as long as the app."""
        while True:
            await self._app.erased.wait()
            await asyncio.sleep(GATHER_SECONDS)
            # Cleared first: what is erased during the fold sets it again.
            self._app.erased.clear()
            await self._fold()

    async def _fold(self) -> None:
        monotonic = self._app.clock.monotonic
        late = monotonic() + LATE_SECONDS - GATHER_SECONDS
        while not await self._app.store.fold():
            if monotonic() >= late:
                late += LATE_SECONDS
                _log.warning(
                    "erased data is still in the database's write-ahead log: a reader keeps it "
                    "from being emptied; trying on"
                )
            await asyncio.sleep(RETRY_SECONDS)
