"""Empties SQLite's write-ahead log after an erasure: it holds pages from before. Erases nothing
itself. If the process dies first, opening the database folds what is left of the WAL.
"""

import asyncio
import logging

from control_api.store.store import Store
from policies.ground.clock import Clock

GATHER_SECONDS = 5.0
"""Erasures within this time share a fold."""
RETRY_SECONDS = 1.0
LATE_SECONDS = 30.0
_log = logging.getLogger("sluice.erasure")


class WalFolding:
    """The loop, which waits for `start`."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._monotonic = clock.monotonic
        self._erased = asyncio.Event()

    def start(self) -> None:
        """Openings were erased: empty the log soon."""
        self._erased.set()

    async def run(self) -> None:
        """Runs as long as the app."""
        while True:
            await self._erased.wait()
            await asyncio.sleep(GATHER_SECONDS)
            # Cleared first: what is erased during the fold sets it again.
            self._erased.clear()
            await self._fold()

    async def _fold(self) -> None:
        late = self._monotonic() + LATE_SECONDS - GATHER_SECONDS
        while not await self._store.fold():
            if self._monotonic() >= late:
                late += LATE_SECONDS
                _log.warning(
                    "erased data is still in the database's write-ahead log: a reader keeps it "
                    "from being emptied; trying on"
                )
            await asyncio.sleep(RETRY_SECONDS)
