"""A node postprocessor for LlamaIndex that passes only nodes whose source is allowed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from sluice_guard.decisions import Decision, NotAllowed, Sensitivity
from sluice_guard.gate import require
from sluice_guard.guard import Guard

SourceOf = Callable[[NodeWithScore], str]
LevelOf = Callable[[NodeWithScore], Sensitivity]
_Origin = tuple[str, Sensitivity]


class GuardPostprocessor(BaseNodePostprocessor):
    """A node postprocessor that asks Sluice once for each source and sensitivity among the nodes.
    `Guard.node_postprocessor` creates it."""

    guard: Guard
    source: str | SourceOf
    sensitivity: Sensitivity | LevelOf = "critical"
    answer: bool = False

    @classmethod
    def class_name(cls) -> str:
        return "GuardPostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        kept: list[NodeWithScore] = []
        for origin, of_origin in self._by_origin(nodes):
            try:
                decision = self.guard.check(*origin, query=_text(query_bundle))
                kept += _allowed(origin, decision, of_origin)
            except NotAllowed as refusal:
                kept.append(self._instead(refusal))
        return kept

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        kept: list[NodeWithScore] = []
        for origin, of_origin in self._by_origin(nodes):
            try:
                decision = await self.guard.acheck(*origin, query=_text(query_bundle))
                kept += _allowed(origin, decision, of_origin)
            except NotAllowed as refusal:
                kept.append(self._instead(refusal))
        return kept

    def _by_origin(
        self, nodes: list[NodeWithScore]
    ) -> Iterator[tuple[_Origin, list[NodeWithScore]]]:
        found: dict[_Origin, list[NodeWithScore]] = {}
        for node in nodes:
            source = self.source if isinstance(self.source, str) else self.source(node)
            level = (
                self.sensitivity if isinstance(self.sensitivity, str) else self.sensitivity(node)
            )
            found.setdefault((source, level), []).append(node)
        return iter(found.items())

    def _instead(self, refusal: NotAllowed) -> NodeWithScore:
        if not self.answer:
            raise refusal
        node = TextNode(text=str(refusal), metadata={"source": refusal.source_id, "allowed": False})
        return NodeWithScore(node=node, score=1.0)


def _allowed(
    origin: _Origin, decision: Decision, nodes: list[NodeWithScore]
) -> list[NodeWithScore]:
    require(origin[0], decision)
    return nodes


def _text(query: QueryBundle | None) -> str | None:
    return None if query is None else query.query_str
