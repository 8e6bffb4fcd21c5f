"""Resolves the fragments of a GraphQL document, each once. Pure. Knows nothing of collections."""

from collections.abc import Iterable

from graphql.language import ast

from policies.ground.errors import Malformed

SelectionSet = ast.SelectionSetNode | None


class Fragments:
    """Fragments by name. Raises `Malformed` for what GraphQL (October 2021) forbids and different
    readers treat differently."""

    def __init__(self, definitions: Iterable[ast.FragmentDefinitionNode]) -> None:
        self._definitions: dict[str, ast.FragmentDefinitionNode] = {}
        for each in definitions:
            # Fragment Name Uniqueness (section 5.5.1.1): readers differ in which one they take.
            if each.name.value in self._definitions:
                raise Malformed(f"the fragment `{each.name.value}` is defined twice")
            self._definitions[each.name.value] = each
        self._types = self._resolve_types()

    def __len__(self) -> int:
        return len(self._definitions)

    def fields(self, selected: SelectionSet, visited: set[str]) -> list[ast.FieldNode]:
        """The selected fields, including those of fragments. Skips the fragments in `visited`, and
        adds those it meets: a fragment's fields are listed once, however often it is spread."""
        found: list[ast.FieldNode] = []
        pending = [selected]
        while pending:
            selection = pending.pop()
            for node in () if selection is None else selection.selections:
                if isinstance(node, ast.FieldNode):
                    found.append(node)
                elif isinstance(node, ast.InlineFragmentNode):
                    pending.append(node.selection_set)
                elif isinstance(node, ast.FragmentSpreadNode) and node.name.value not in visited:
                    visited.add(node.name.value)
                    pending.append(self._definition(node.name.value).selection_set)
        return found

    def types(self, selected: SelectionSet) -> list[str]:
        """The type conditions of all fragments in a selection, at any depth, each once."""
        own, spread = _direct_types(selected)
        for name in spread:
            self._definition(name)
            own += self._types[name]
        return list(dict.fromkeys(own))

    def _definition(self, name: str) -> ast.FragmentDefinitionNode:
        found = self._definitions.get(name)
        if found is None:
            # Fragment spread target defined (5.5.2.1).
            raise Malformed(f"the fragment `{name}` is not defined")
        return found

    def _resolve_types(self) -> dict[str, list[str]]:
        """For each fragment, its own type and the types within it."""
        # Inner fragments are resolved before those that spread them, each once: walking them again
        # at every spread would take exponential time. No recursion: the caller chooses the depth.
        direct = {
            name: _direct_types(each.selection_set) for name, each in self._definitions.items()
        }
        resolved: dict[str, list[str]] = {}
        open_fragments: set[str] = set()
        # Each fragment is visited twice: before and after those within it.
        pending = [(name, False) for name in direct]
        while pending:
            name, inner_done = pending.pop()
            definition = self._definition(name)
            types, spread = direct[name]
            if inner_done:
                open_fragments.remove(name)
                own = definition.type_condition.name.value
                inner = [each for one in spread for each in resolved[one]]
                resolved[name] = list(dict.fromkeys([own, *types, *inner]))
            elif name in open_fragments:
                # Fragment spreads must not form cycles (5.5.2.2).
                raise Malformed(f"the fragment `{name}` is spread within itself")
            elif name not in resolved:
                open_fragments.add(name)
                pending.append((name, True))
                pending += [(each, False) for each in spread]
        return resolved


def _direct_types(selected: SelectionSet) -> tuple[list[str], list[str]]:
    """The type conditions of the inline fragments in a selection, at any depth, and the names of
    the fragments that are spread there, each once."""
    types: dict[str, None] = {}
    spread: dict[str, None] = {}
    pending = [selected]
    while pending:
        selection = pending.pop()
        for node in () if selection is None else selection.selections:
            if isinstance(node, ast.FragmentSpreadNode):
                spread[node.name.value] = None
            elif isinstance(node, ast.FieldNode):
                pending.append(node.selection_set)
            elif isinstance(node, ast.InlineFragmentNode):
                pending.append(node.selection_set)
                if node.type_condition is not None:
                    types[node.type_condition.name.value] = None
    return list(types), list(spread)
