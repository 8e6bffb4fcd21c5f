"""All ways through the sidecar to its data sources, put together: the sources, each once, and the
ports that lead to them.

Knows which parts there are, and their order: sources open before their ports and close after them.
"""

import asyncio
from collections.abc import Iterable, Sequence

from policies.ground.clock import Clock
from policies.ground.listen import Listen
from sidecar.enforce import Enforcer
from sidecar.identity import AgentIdentity
from sidecar.proxy.guarded import Guarded
from sidecar.proxy.limits import LIMITS, Limits
from sidecar.proxy.listener import Listener
from sidecar.proxy.outside import Outside
from sidecar.proxy.switch import Switch
from sidecar.settings import Source


class Ways:
    """The ways to `sources` for one agent."""

    def __init__(
        self,
        sources: Iterable[Source],
        agent: AgentIdentity,
        enforcer: Enforcer,
        clock: Clock,
        limits: Limits = LIMITS,
    ) -> None:
        self._agent = agent
        self._enforcer = enforcer
        self._limits = limits
        self._sources = [Guarded(source, agent, enforcer, clock, limits) for source in sources]
        self._ports: dict[str, Listener] = {}
        for listen, guarded in self._by_port():
            made = self._reverse(listen, guarded)
            self._ports |= {each.source.alias: made for each in guarded}

    async def start(self) -> None:
        """Opens the ports. Raises `OSError` where one is taken, `RuntimeError` where a server does
        not behave as it was told to."""
        for guarded in self._sources:
            await guarded.open()
        for port in dict.fromkeys(self._ports.values()):
            await port.start()

    def port(self, alias: str) -> int:
        """The port on which this source is found."""
        return self._ports[alias].port

    async def close(self, seconds: float) -> None:
        """Takes no more connections, lets what is under way finish for `seconds`, then ends it."""
        try:
            await asyncio.gather(*(each.close(seconds) for each in set(self._ports.values())))
        finally:
            for guarded in self._sources:
                await guarded.close()

    def _by_port(self) -> list[tuple[Listen, Sequence[Guarded]]]:
        found: dict[Listen, list[Guarded]] = {}
        apart: list[tuple[Listen, Sequence[Guarded]]] = []
        for guarded in self._sources:
            listen = guarded.source.listen
            if listen is None:
                continue
            if listen.port:
                found.setdefault(listen, []).append(guarded)
            else:
                # The system chooses one for each.
                apart.append((listen, [guarded]))
        return [*found.items(), *apart]

    def _reverse(self, listen: Listen, guarded: Sequence[Guarded]) -> Listener:
        if len(guarded) == 1 and guarded[0].source.path is None:
            alone = guarded[0]
            return Listener(listen, alone.gate.serve, self._limits, alone.short_way)
        outside = Outside(str(listen), self._agent, self._enforcer)
        return Listener(listen, Switch(listen, guarded, outside).serve, self._limits)
