"""Loads policies from files `<dir>/<tenant_id>/<industry>/<process_group>.yaml`, and a tenant's
guardrails from `<dir>/<tenant_id>/guardrails.yaml`.

A file of policies has the form `policies: […]`. This is the only module of the services that
imports a YAML parser. Knows the encoding and limits of a file, and the line of each value.
`policies.definitions.policy_files` finds the files; `policies.definitions.policy_form` and
`policies.definitions.guardrail` say what they may hold. Knows no store.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

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
    in_order,
    label,
    printable,
    shown,
)
from policies.definitions.guardrail import GUARDRAIL_FILE, DefinedGuardrail, refuse_duplicates
from policies.definitions.policy_files import files, guardrail_file, policies_among_tests
from policies.definitions.policy_form import POLICY_FILE
from policies.ground.canonical import identifier_fault
from policies.ground.errors import worded

MAX_FILE = 1024 * 1024
"""The most bytes that a policy file may have."""

_MAX_DEPTH = 8  # a policy file needs 4; each level is a call of `_node`
_CORE = "tag:yaml.org,2002:"
# libyaml if the wheel has it: ten times as fast, and it produces the same events.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_resolve: Callable[[type[yaml.Node], str, tuple[bool, bool]], str] = (
    yaml.resolver.Resolver().resolve
)


def load_tenant(root: Path, tenant_id: str) -> list[Definition]:
    """Return the policies in a tenant's files, in order of file and line; empty if the tenant has
    no folder.

    Raises `LoadError` with every fault of every file: one fault rejects all of the tenant's files.
    """
    paths, faults = files(root, tenant_id)
    definitions: list[Definition] = []
    for path in paths:
        found, wrong = _load(path, str(path.relative_to(root)))
        definitions += found
        faults += wrong
    faults += policies_among_tests(root, tenant_id)
    # Check all files together: a name must be unique within the tenant, not only within a file.
    faults += _duplicates(definitions)
    if faults:
        # Two searches find a folder that can't be read.
        raise LoadError(in_order(dict.fromkeys(faults)))
    return definitions


def load_file(path: Path) -> list[Definition]:
    """Return the policies in one file, wherever it is. Raises `LoadError` with all its faults."""
    definitions, faults = _load(path, str(path))
    faults += _duplicates(definitions)
    if faults:
        raise LoadError(in_order(faults))
    return definitions


def _duplicates(definitions: list[Definition]) -> Iterator[DefinitionFault]:
    """Yield a fault for each policy whose name an earlier one has. Names are compared byte for
    byte."""
    first: dict[str, Definition] = {}
    for each in definitions:
        other = first.setdefault(each.body["name"], each)
        if other is not each:
            place = f"{printable(other.file)}:{other.line}"
            message = f"{shown(each.body['name'])} is already used at {place}"
            yield DefinitionFault(each.file, each.line, "name", message)


def _load(path: Path, file: str) -> tuple[list[Definition], list[DefinitionFault]]:
    faults = DefinitionFaults(file)
    definitions: list[Definition] = []
    try:
        industry, process_group = path.parent.name, path.stem
        for name in (industry, process_group):
            fault = identifier_fault(name)
            if fault:
                # These names are the defaults of an entry's fields, so they obey the same rules.
                faults.add(0, "", f"{shown(name)} in the path {fault}")
        text = read_text(path, faults)
        tree = None if text is None else parse_tree(text, faults)
        found = None if tree is None else POLICY_FILE.read("", tree, faults)
        for definition in filter(None, (found or {}).get("policies") or ()):
            definition.body["industry"] = definition.body["industry"] or industry
            definition.body["process_group"] = definition.body["process_group"] or process_group
            definitions.append(definition)
    except DefinitionFaults.TooManyFaults:
        pass  # `faults` keeps what was found, and its last entry says that there are more
    return definitions, faults.found


def read_text(path: Path, faults: DefinitionFaults) -> str | None:
    """Return the text of a YAML file; None if it can't be read, after adding the reason to
    `faults`."""
    try:
        # Only regular files: reading a pipe or device with a policy file's name would block
        # forever.
        raw = path.read_bytes() if path.is_file() and path.stat().st_size <= MAX_FILE else None
    except OSError as error:
        faults.add(0, "", f"can't be read: {worded(error)}")
        return None
    if raw is None:
        if not path.exists():
            dangling = "is a link to a file that does not exist"
            faults.add(0, "", dangling if path.is_symlink() else "does not exist")
        elif path.is_file():
            faults.add(0, "", f"is larger than {MAX_FILE} bytes")
        else:
            faults.add(0, "", "is a directory" if path.is_dir() else "is not a regular file")
        return None
    try:
        text = raw.decode("utf-8-sig")  # some editors begin a file with a byte order mark
    except UnicodeDecodeError as error:
        faults.add(raw.count(b"\n", 0, error.start) + 1, "", "is not UTF-8")
        return None
    return None if fault_in_text(text, faults) else text


def fault_in_text(text: str, faults: DefinitionFaults) -> bool:
    """Return whether the text has a character that is not allowed in YAML. If so, a fault with its
    line is added to `faults`."""
    control = Reader.NON_PRINTABLE.search(text)
    if control is None:
        return False
    line = text.count("\n", 0, control.start()) + 1
    faults.add(line, "", f"contains the control character {shown(control.group())}")
    return True


class _UnsupportedYaml(Exception):
    """the file uses a YAML feature that policy files don't support"""

    def __init__(self, event: Event, message: str) -> None:
        super().__init__(message)
        self.line = _line(event)


def _line(event: Event) -> int:
    assert event.start_mark is not None  # the parser gives every event one
    return event.start_mark.line + 1


def parse_tree(text: str, faults: DefinitionFaults, key: str = "policies") -> Node | None:
    """Parse the single YAML document in `text`; None if it can't be parsed, after adding the reason
    to `faults`. `key` is the top-level list that such a file should have, for the message."""
    found: Node | None = None
    try:
        events = yaml.parse(text, Loader=_LOADER)
        for event in events:
            if isinstance(event, DocumentStartEvent):
                if found is not None:
                    raise _UnsupportedYaml(event, "contains a second document")
                found = _node(next(events), events, faults, 0)
    except _UnsupportedYaml as error:
        faults.add(error.line, "", str(error))
        return None
    except (yaml.YAMLError, ValueError) as error:  # Python itself rejects `\U00110000`
        problem = getattr(error, "problem", None) or str(error)
        faults.add(_line_of(error, text), "", f"is not YAML: {problem}")
        return None
    if found is None:
        # Some editors truncate a file before they write it. That must not remove what it defines.
        faults.add(0, "", f"is empty; `{key}: []` defines no {key}")
    return found


def _line_of(error: Exception, text: str) -> int:
    """Return the number of the line that a parser's error is about, 0 if it names none."""
    problem, context = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    if problem is None or context is None:
        mark = problem or context
        return 0 if mark is None else int(mark.line) + 1
    last = len(text.splitlines())
    # The parser notices behind it that something was never finished: a key without its `:`, or
    # in a file that was cut off a list or a text, for which it names the line after the last.
    unfinished = (
        problem.line >= last or getattr(error, "context", "") == "while scanning a simple key"
    )
    return min(last, int((context if unfinished else problem).line) + 1)


def _node(event: Event, events: Iterator[Event], faults: DefinitionFaults, depth: int) -> Node:
    line = _line(event)
    if isinstance(event, AliasEvent):
        alias = shown(f"*{event.anchor}")
        raise _UnsupportedYaml(event, f"uses the alias {alias}; aliases are not supported")
    if depth > _MAX_DEPTH:
        raise _UnsupportedYaml(event, f"is nested more than {_MAX_DEPTH} levels deep")
    if isinstance(event, ScalarEvent):
        tag = event.tag
        # Without a tag, YAML's own rules give a plain scalar its type: `no` is a truth value.
        if tag is None or tag == "!":
            tag = _resolve(yaml.ScalarNode, event.value, event.implicit)
        if not tag.startswith(_CORE):
            raise _UnsupportedYaml(event, f"uses the tag {shown(tag)}; tags are not supported")
        return Node(line, tag.removeprefix(_CORE), event.value)
    if not isinstance(event, MappingStartEvent | SequenceStartEvent):
        raise _UnsupportedYaml(event, f"has a {type(event).__name__} where a value was expected")
    # Collections can have tags as well: `!!python/object` is one.
    if event.tag is not None:
        raise _UnsupportedYaml(event, f"uses the tag {shown(event.tag)}; tags are not supported")
    if isinstance(event, SequenceStartEvent):
        return Node(line, "list", list(_items(events, faults, depth)))
    return Node(line, "map", _members(events, faults, depth))


def _items(events: Iterator[Event], faults: DefinitionFaults, depth: int) -> Iterator[Node]:
    for event in events:
        if isinstance(event, CollectionEndEvent):
            return
        yield _node(event, events, faults, depth + 1)


def _members(events: Iterator[Event], faults: DefinitionFaults, depth: int) -> dict[str, Node]:
    """Return the values of a YAML mapping by key. Each gets the line of its key, since a block
    value starts on a later line."""
    members: dict[str, Node] = {}
    for event in events:
        if isinstance(event, CollectionEndEvent):
            break
        if not isinstance(event, ScalarEvent):
            raise _UnsupportedYaml(event, "has a key that is not a string")
        key, line = event.value, _line(event)
        value = _node(next(events), events, faults, depth + 1)
        # Reported rather than raised, so that the rest of the file is checked as well.
        if key in members:
            faults.add(line, label(key), f"duplicate key; the first is on line {members[key].line}")
        else:
            members[key] = Node(line, value.tag, value.value)
    return members


class TenantDefinitions(NamedTuple):
    """The policies and guardrails that a tenant's files define."""

    policies: list[Definition]
    guardrails: list[DefinedGuardrail]


def load_definitions(root: Path, tenant_id: str) -> TenantDefinitions:
    """Return the policies and guardrails in a tenant's files; both are empty if it has no folder.

    Raises `LoadError` with every fault of every file: one fault rejects all of the tenant's files.
    """
    faults: list[DefinitionFault] = []
    policies: list[Definition] = []
    guardrails: list[DefinedGuardrail] = []
    try:
        policies = load_tenant(root, tenant_id)
    except LoadError as error:
        faults += error.faults
    try:
        guardrails = load_guardrails(root, tenant_id)
    except LoadError as error:
        faults += error.faults
    if faults:
        raise LoadError(in_order(dict.fromkeys(faults)))
    return TenantDefinitions(policies, guardrails)


def load_guardrails(root: Path, tenant_id: str) -> list[DefinedGuardrail]:
    """Return the guardrails of a tenant's file, in its order; empty if there is no such file.
    Raises `LoadError` with all its faults."""
    path = guardrail_file(root, tenant_id)
    return [] if path is None else load_guardrail_file(path, str(path.relative_to(root)))


def load_guardrail_file(path: Path, file: str | None = None) -> list[DefinedGuardrail]:
    """Return the guardrails in one file, wherever it is. `file` is the name of the file in faults,
    by default its path. Raises `LoadError` with all its faults."""
    faults = DefinitionFaults(str(path) if file is None else file)
    found: list[DefinedGuardrail] = []
    try:
        text = read_text(path, faults)
        tree = None if text is None else parse_tree(text, faults, "guardrails")
        read = None if tree is None else GUARDRAIL_FILE.read("", tree, faults)
        found = [each for each in (read or {}).get("guardrails") or () if each is not None]
        refuse_duplicates(found, faults)
    except DefinitionFaults.TooManyFaults:
        pass  # `faults` keeps what was found, and its last entry says that there are more
    if faults.found:
        raise LoadError(in_order(faults.found))
    return found
