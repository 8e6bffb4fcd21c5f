"""Policies from files: `<dir>/<tenant_id>/<industry>/<process_group>.yaml`, each `policies: […]`.

The one module that reads YAML. Knows the encoding and the limits of a file, and at which line
everything stands. `policies.definitions.policy_files` knows which files there are,
`policies.definitions.definition` what a
policy may say. Knows no store: what was added, changed or removed is for the caller to find out.

A file is the operator's, and still untrusted: no tags, no aliases (a few lines of them expand to
gigabytes), no duplicate keys (the second would silently win), bounded size and depth, and no
symbolic link out of the tenant's folder.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import yaml
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    ScalarEvent,
    SequenceStartEvent,
)
from yaml.reader import Reader

from policies.definitions.definition import (
    Definition,
    DefinitionFault,
    DefinitionFaults,
    LoadError,
    Node,
    define,
    in_order,
    label,
    shown,
    unknown_key,
)
from policies.definitions.policy_files import files, strays, tenants
from policies.ground.json_body import identifier_fault

__all__ = [
    "Definition",
    "DefinitionFault",
    "LoadError",
    "load_file",
    "load_tenant",
    "strays",
    "tenants",
]

MAX_FILE = 1024 * 1024
"""Bytes of a policy file."""

_MAX_DEPTH = 8
_CORE = "tag:yaml.org,2002:"
# libyaml where the wheel has it, ten times the speed; the same events either way.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_resolve: Callable[[type[yaml.Node], str, tuple[bool, bool]], str] = (
    yaml.resolver.Resolver().resolve
)


def load_tenant(root: Path, tenant_id: str) -> list[Definition]:
    """What the tenant's files define, in order of file and line; nothing where it has no folder.

    `LoadError` with every fault of every file, and then none of the definitions is to be used.
    """
    paths, faults = files(root, tenant_id)
    definitions: list[Definition] = []
    for path in paths:
        found, wrong = _read(path, str(path.relative_to(root)))
        definitions += found
        faults += wrong
    faults += _twice(definitions)
    if faults:
        raise LoadError(in_order(faults))
    return definitions


def load_file(path: Path) -> list[Definition]:
    """What one file defines, wherever it lies; `LoadError` with all its faults."""
    definitions, faults = _read(path, str(path))
    faults += _twice(definitions)
    if faults:
        raise LoadError(in_order(faults))
    return definitions


def _twice(definitions: list[Definition]) -> Iterator[DefinitionFault]:
    """Names that several policies have. Case counts, and nothing is normalised."""
    first: dict[str, Definition] = {}
    for each in definitions:
        other = first.setdefault(each.body["name"], each)
        if other is not each:
            message = f"{shown(each.body['name'])} is also the name at {other.file}:{other.line}"
            yield DefinitionFault(each.file, each.line, "name", message)


def _read(path: Path, file: str) -> tuple[list[Definition], list[DefinitionFault]]:
    faults = DefinitionFaults(file)
    definitions: list[Definition] = []
    try:
        industry, process_group = path.parent.name, path.stem
        for name in (industry, process_group):
            fault = identifier_fault(name)
            if fault:
                faults.add(0, "", f"the path's {shown(name)} {fault}")
        text = _text(path, faults)
        tree = None if text is None else _tree(text, faults)
        for entry in [] if tree is None else _entries(tree, faults):
            definition = define(entry, industry, process_group, faults)
            if definition is not None:
                definitions.append(definition)
    except DefinitionFaults.TooManyFaults:
        pass  # what was found is in `faults`, and the last of them says that there is more
    return definitions, faults.found


def _text(path: Path, faults: DefinitionFaults) -> str | None:
    try:
        # A pipe or device named like a policy file would be waited for without end.
        raw = path.read_bytes() if path.is_file() and path.stat().st_size <= MAX_FILE else None
    except OSError as error:
        faults.add(0, "", f"can't be read: {error.strerror}")
        return None
    if raw is None:
        if not path.exists():
            broken = "is a link to a file that does not exist"
            faults.add(0, "", broken if path.is_symlink() else "does not exist")
        elif path.is_file():
            faults.add(0, "", f"is larger than {MAX_FILE} bytes")
        else:
            faults.add(0, "", "is a directory" if path.is_dir() else "is not a regular file")
        return None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        faults.add(raw.count(b"\n", 0, error.start) + 1, "", "is not UTF-8")
        return None
    strange = Reader.NON_PRINTABLE.search(text)
    if strange is not None:
        line = text.count("\n", 0, strange.start()) + 1
        faults.add(line, "", f"has the control character {shown(strange.group())}")
        return None
    return text


def _entries(tree: Node, faults: DefinitionFaults) -> list[Node]:
    """The items of `policies`, which is all that a file may hold."""
    if tree.tag != "map":
        faults.add(tree.line, "", "must be a mapping with the key `policies`")
        return []
    members: dict[str, Node] = tree.value
    for key, node in members.items():
        if key != "policies":
            unknown_key(node.line, key, ("policies",), faults)
    policies = members.get("policies")
    if policies is None or policies.tag != "list":
        line = tree.line if policies is None else policies.line
        fault = "is required" if policies is None else "must be a list, `[]` where there are none"
        faults.add(line, "policies", fault)
        return []
    items: list[Node] = policies.value
    return items


class _Refused(Exception):
    """something that YAML has and a policy file has not"""

    def __init__(self, event: Event, message: str) -> None:
        super().__init__(message)
        self.line = _line(event)


def _line(event: Event) -> int:
    assert event.start_mark is not None  # the parser gives every event one
    return event.start_mark.line + 1


def _tree(text: str, faults: DefinitionFaults) -> Node | None:
    """The one document in `text`; None where `faults` got why there is none."""
    found: Node | None = None
    try:
        events = yaml.parse(text, Loader=_LOADER)
        for event in events:
            if isinstance(event, DocumentStartEvent):
                if found is not None:
                    raise _Refused(event, "holds a second document")
                found = _node(next(events), events, faults, 0)
    except _Refused as refused:
        faults.add(refused.line, "", str(refused))
        return None
    except (yaml.YAMLError, ValueError) as error:  # `\U00110000` is a `ValueError` of Python's own
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        faults.add(0 if mark is None else mark.line + 1, "", f"is not YAML: {problem}")
        return None
    if found is None:
        # An editor that truncates before it writes must not remove a file's policies on the way.
        faults.add(0, "", "is empty; `policies: []` says that there are none")
    return found


def _node(event: Event, events: Iterator[Event], faults: DefinitionFaults, depth: int) -> Node:
    line = _line(event)
    if isinstance(event, AliasEvent):
        raise _Refused(event, f"uses the alias {shown(f'*{event.anchor}')}; aliases are not read")
    if depth > _MAX_DEPTH:
        raise _Refused(event, f"is nested more than {_MAX_DEPTH} deep")
    if isinstance(event, ScalarEvent):
        tag = event.tag
        if tag is None or tag == "!":
            tag = _resolve(yaml.ScalarNode, event.value, event.implicit)
        if not tag.startswith(_CORE):
            raise _Refused(event, f"uses the tag {shown(tag)}; tags are not read")
        return Node(line, tag.removeprefix(_CORE), event.value)
    if not isinstance(event, MappingStartEvent | SequenceStartEvent):
        raise _Refused(event, f"holds a {type(event).__name__} where a value should stand")
    if event.tag is not None:
        raise _Refused(event, f"uses the tag {shown(event.tag)}; tags are not read")
    if isinstance(event, SequenceStartEvent):
        return Node(line, "list", list(_items(events, faults, depth)))
    return Node(line, "map", _members(events, faults, depth))


def _items(events: Iterator[Event], faults: DefinitionFaults, depth: int) -> Iterator[Node]:
    for event in events:
        if isinstance(event, CollectionEndEvent):
            return
        yield _node(event, events, faults, depth + 1)


def _members(events: Iterator[Event], faults: DefinitionFaults, depth: int) -> dict[str, Node]:
    """Each value under its key, with the key's line where the value starts on a later one."""
    members: dict[str, Node] = {}
    for event in events:
        if isinstance(event, CollectionEndEvent):
            break
        if not isinstance(event, ScalarEvent):
            raise _Refused(event, "has a key that is not a string")
        key, line = event.value, _line(event)
        value = _node(next(events), events, faults, depth + 1)
        if key in members:
            faults.add(line, label(key), f"stands twice; the first is on line {members[key].line}")
        else:
            members[key] = value._replace(line=line)
    return members
