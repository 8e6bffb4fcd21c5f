"""The logs that someone asked to verify now, for the loop that does it. Knows no log."""

import asyncio


class AskedLogs:
    """The tenants whose logs are to be verified, in the order in which they were asked for; each
    is in it once."""

    def __init__(self) -> None:
        self._asked: dict[str, None] = {}
        self._some = asyncio.Event()

    def add(self, tenant_id: str) -> None:
        self._asked[tenant_id] = None
        self._some.set()

    async def next(self) -> str:
        """Wait for the next one, and take it out."""
        await self._some.wait()
        tenant_id = next(iter(self._asked))
        del self._asked[tenant_id]
        if not self._asked:
            self._some.clear()
        return tenant_id
