"""Which sources a Bedrock request names in its body, at whatever depth: knowledge bases, agents,
objects of S3, functions, memories. A name in another form than its own is refused: AWS takes some
things by an identifier and by an ARN, and policies know one of the two. Pure."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from policies.ground.errors import Malformed
from sidecar.protocols.messages import Unresolved

# AWS writes identifiers in capitals, and does not say that it reads no others.
_IDENTIFIER = re.compile(r"[0-9A-Z]{1,10}").fullmatch
_OWNER = r"arn:aws(?:-[a-z]+)*:bedrock:[a-z0-9-]{1,20}:[0-9]{12}"
_KNOWLEDGE_BASE = re.compile(rf"{_OWNER}:knowledge-base/([0-9A-Z]{{1,10}})").fullmatch
_AGENT_ALIAS = re.compile(rf"{_OWNER}:agent-alias/([0-9A-Z]{{1,10}})/([0-9A-Z]{{1,10}})").fullmatch
_S3 = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/(.+)", re.DOTALL).fullmatch

Parts = tuple[str, ...]
"""The parts of a source id, behind `bedrock://<alias>/`."""

Values = tuple[str, ...]
"""What a path holds in the places of a pattern's names."""


def identifier(text: object) -> str:
    """An identifier of AWS's as it stands; raises `Unresolved` for an ARN or another spelling."""
    if not isinstance(text, str) or not _IDENTIFIER(text):
        raise Unresolved("a part of Bedrock is not stated by its own identifier")
    return text


def references(body: Any) -> list[Parts]:
    """Everything that a body names. Raises `Malformed`, `Unresolved`."""
    found: list[Parts] = []
    pending = [body]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            found += _named(node)
            pending += node.values()
        elif isinstance(node, list):
            pending += node
    return found


def only(body: dict[str, Any], members: frozenset[str]) -> None:
    """Raises `Malformed` for a member that is not known here: it may name a source."""
    for name in body:
        if name not in members:
            raise Malformed(f"the member `{name[:64]}` of the body is not known here")


def _named(node: dict[str, Any]) -> Iterator[Parts]:
    # Whoever reads names without regard to case would take what stands here for a name too.
    members = {name.lower(): value for name, value in node.items()}
    if len(members) != len(node):
        raise Malformed("two members of the body differ in case alone")
    for name, value in members.items():
        match name:
            case "knowledgebaseid":
                yield (identifier(value),)
            case "knowledgebasearn":
                yield _by_arn(_KNOWLEDGE_BASE, value)
            case "agentaliasarn":
                yield ("agent", *_by_arn(_AGENT_ALIAS, value))
            case "externalsourcesconfiguration":
                # Besides the objects in it: it may bring along what it wants read.
                yield ("external-sources",)
            case "memoryid":
                yield ("memory", _text(value))
            case "lambda" | "overridelambda":
                yield ("lambda", _text(value))
            case "uri" if isinstance(value, str) and value.lower().startswith("s3:"):
                yield _object(value)
            case "s3location":
                yield _object(value.get("uri") if isinstance(value, dict) else None)
            case "s3bucketname":
                yield _object(f"s3://{_text(value)}/{_text(members.get('s3objectkey'))}")


def _by_arn(form: Any, value: object) -> Parts:
    found = form(_text(value))
    if found is None:
        raise Unresolved("a part of Bedrock is named by an ARN of a form not known here")
    parts: Parts = found.groups()
    return parts


def _object(value: object) -> Parts:
    found = _S3(_text(value))
    if found is None:
        raise Unresolved("a source that is no object of S3 is named by its address")
    return ("s3", found[1], *found[2].split("/"))


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise Unresolved("a source is named by something that is no text")
    return value


def nothing(_values: Values) -> Parts:
    return ()


def knowledge_base(values: Values) -> Parts:
    return (identifier(values[0]),)


def document(values: Values) -> Parts:
    return (identifier(values[0]), identifier(values[1]), values[2])


def agent(values: Values) -> Parts:
    return ("agent", identifier(values[0]), identifier(values[1]))


def flow(values: Values) -> Parts:
    return ("flow", *(identifier(value) for value in values[:2]))


def execution(values: Values) -> list[str]:
    """The token that an execution's path holds."""
    return [f"execution:{values[2]}"]


def conversation(values: Values, stated: dict[str, Any]) -> list[str]:
    """An agent's session and memory, which the caller names: what was said in them comes back."""
    tokens = [] if len(values) == 2 else ["agent session:" + "/".join(values)]
    memory = stated.get("memoryId")
    return tokens if memory is None else [*tokens, f"memory:{memory}"]


def _no_tokens(*_of: object) -> list[str]:
    return []


@dataclass(frozen=True, slots=True)
class ReferenceNames:
    """How one operation names what it reads."""

    own: Callable[[Values], Parts] = nothing
    """What its path names."""
    members: frozenset[str] = frozenset()
    """What its body may hold."""
    query: frozenset[str] = frozenset()
    """What its query may hold."""
    some: bool = False
    """Whether its body must name a source, or the session of one."""
    issued: Callable[[Values], list[str]] = _no_tokens
    """The tokens in its path."""
    claimed: Callable[[Values, dict[str, Any]], list[str]] = _no_tokens
    """The names of the caller's own choice, in its path and in what it states."""
