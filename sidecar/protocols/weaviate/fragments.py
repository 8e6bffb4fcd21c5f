"""The fragments of a GraphQL document, each resolved once. Pure. Knows nothing of collections."""

from collections.abc import Iterable

from graphql.language import ast

from policies.ground.errors import Malformed

Selected = ast.SelectionSetNode | None


class Fragments:
    """Fragments by name. Raises `Malformed` for what GraphQL forbids and readers differ on: a name
    that stands twice (GraphQL, October 2021, section 5.5.1.1), a spread of a fragment that isn't
    there (5.5.2.1), and a circle of them (5.5.2.2)."""

    def __init__(self, definitions: Iterable[ast.FragmentDefinitionNode]) -> None:
        self._definitions: dict[str, ast.FragmentDefinitionNode] = {}
        for each in definitions:
            if each.name.value in self._definitions:
                raise Malformed(f"the fragment `{each.name.value}` stands twice")
            self._definitions[each.name.value] = each
        self._types = self._resolved()

    def __len__(self) -> int:
        return len(self._definitions)

    def fields(self, selected: Selected, known: set[str]) -> list[ast.FieldNode]:
        """The fields selected, those of fragments among them. Fragments in `known` are left out,
        and those that were found are added: the fields of one come once, however often it is
        spread."""
        found: list[ast.FieldNode] = []
        pending = [selected]
        while pending:
            selection = pending.pop()
            for node in () if selection is None else selection.selections:
                if isinstance(node, ast.FieldNode):
                    found.append(node)
                elif isinstance(node, ast.InlineFragmentNode):
                    pending.append(node.selection_set)
                elif isinstance(node, ast.FragmentSpreadNode) and node.name.value not in known:
                    known.add(node.name.value)
                    pending.append(self._named(node.name.value).selection_set)
        return found

    def types(self, selected: Selected) -> list[str]:
        """The types that fragments are on, at any depth of a selection, each once."""
        own, spread = _direct(selected)
        return list(dict.fromkeys([*own, *(each for name in spread for each in self._of(name))]))

    def _of(self, name: str) -> list[str]:
        self._named(name)
        return self._types[name]

    def _named(self, name: str) -> ast.FragmentDefinitionNode:
        found = self._definitions.get(name)
        if found is None:
            raise Malformed(f"there is no fragment `{name}`")
        return found

    def _resolved(self) -> dict[str, list[str]]:
        """For each fragment the types of `types`, its own first. Inner fragments are resolved
        before those that spread them."""
        direct = {name: _direct(each.selection_set) for name, each in self._definitions.items()}
        resolved: dict[str, list[str]] = {}
        within: set[str] = set()
        pending = [(name, False) for name in direct]
        while pending:
            name, inner_done = pending.pop()
            definition = self._named(name)
            types, spread = direct[name]
            if inner_done:
                within.remove(name)
                own = definition.type_condition.name.value
                inner = [each for one in spread for each in resolved[one]]
                resolved[name] = list(dict.fromkeys([own, *types, *inner]))
            elif name in within:
                raise Malformed(f"the fragment `{name}` is spread within itself")
            elif name not in resolved:
                within.add(name)
                pending.append((name, True))
                pending += [(each, False) for each in spread]
        return resolved


def _direct(selected: Selected) -> tuple[list[str], list[str]]:
    """The types of the inline fragments in a selection, at any depth, and the names of the
    fragments that are spread there, each once."""
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
