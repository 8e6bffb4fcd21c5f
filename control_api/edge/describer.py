"""Renders the API's description when it is first asked for: that takes longer than the rest of a
start together, and most processes are never asked."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from control_api.edge.answers import Document


@dataclass(frozen=True, slots=True)
class Description:
    """The API's own description, rendered once from the route table."""

    openapi: Document
    page: Document


class Describer:
    """`render` runs once, in a thread, so that other requests go on meanwhile."""

    def __init__(self, render: Callable[[], Description]) -> None:
        self._render = render
        self._rendered: asyncio.Future[Description] | None = None

    async def describe(self) -> Description:
        """The description. Requests that arrive while it is rendered wait for that rendering."""
        if self._rendered is None:
            self._rendered = asyncio.get_running_loop().run_in_executor(None, self._render)
        # Shielded: a client that hangs up leaves the rendering to the others.
        return await asyncio.shield(self._rendered)
