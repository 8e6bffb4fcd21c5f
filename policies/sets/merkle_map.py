"""The documents of a policy set as a Merkle map: one digest stands for all of them, and a few
nodes prove what a name's document is, or that there is none.

    root      64 digests of branches
    branch    64 digests of buckets
    bucket    [[name, digest of the document], …] in order of name

A name's bucket is the first 12 bits of its SHA-256. A digest is SHA-256 in hex; "" stands for a
branch or a bucket in which there is nothing. Whoever has the root's digest from a source it trusts
may take nodes and documents from one that it does not: what was left out, kept back or put in
place of something newer does not lead to that digest. Knows no signature and no place.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from policies.ground.canonical import encode

FAN = 64
ROOT = "root"
NOTHING = ""
EMPTY_ROOT = encode([NOTHING] * FAN)


class NotProven(ValueError):
    """the nodes do not lead to the digest of the root"""


def node_digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def path(name: str) -> tuple[str, str]:
    """The branch and the bucket of a document's name, as nodes are called."""
    first, second = hashlib.sha256(name.encode()).digest()[:2]
    branch, bucket = first >> 2, ((first & 3) << 4) | (second >> 4)
    return f"{branch:02x}", f"{branch:02x}.{bucket:02x}"


def nodes_of(names: Iterable[str]) -> set[str]:
    """The nodes that prove these names, and that change with them; the root among them."""
    return {ROOT}.union(*map(path, names))


def prove(root: str, nodes: Mapping[str, bytes | None], name: str) -> str | None:
    """The digest of the document of this name under the root of this digest, None where there is
    none. `NotProven` where `nodes` do not say."""
    branch, bucket = path(name)
    top = _children(nodes, ROOT, root)
    digest = top[_place(branch)]
    if digest == NOTHING:
        return None
    digest = _children(nodes, branch, digest)[_place(bucket[3:])]
    if digest == NOTHING:
        return None
    for held, document in _opened(nodes, bucket, digest):
        if held == name:
            return str(document)
    return None


def grown(
    nodes: Mapping[str, bytes | None], changed: Mapping[str, str | None]
) -> dict[str, bytes | None]:
    """The nodes as they are after these documents changed: a name's new digest, None where it was
    removed; None for a node in which there is nothing any more. `nodes` holds what `nodes_of` names
    of the tree before, as far as there is any of it."""
    new: dict[str, bytes | None] = {}
    buckets: dict[str, dict[str, str]] = {}
    branches: dict[str, list[str]] = {}
    for name, digest in changed.items():
        branch, bucket = path(name)
        held = buckets.setdefault(bucket, dict(_read(nodes.get(bucket), [])))
        if digest is None:
            held.pop(name, None)
        else:
            held[name] = digest
        branches.setdefault(branch, _read(nodes.get(branch), [NOTHING] * FAN))
    for bucket, held in buckets.items():
        new[bucket] = encode(sorted(held.items())) if held else None
        branches[bucket[:2]][_place(bucket[3:])] = _digest(new[bucket])
    top = _read(nodes.get(ROOT), [NOTHING] * FAN)
    for branch, digests in branches.items():
        new[branch] = encode(digests) if any(digests) else None
        top[_place(branch)] = _digest(new[branch])
    new[ROOT] = encode(top)
    return new


def _digest(body: bytes | None) -> str:
    return NOTHING if body is None else node_digest(body)


def _place(label: str) -> int:
    return int(label, 16)


def _read(body: bytes | None, empty: list[Any]) -> list[Any]:
    return list(empty) if body is None else list(orjson.loads(body))


def _children(nodes: Mapping[str, bytes | None], node: str, digest: str) -> list[str]:
    children = _opened(nodes, node, digest)
    if len(children) != FAN:
        raise NotProven(f"node `{node}` has not {FAN} children")
    return children


def _opened(nodes: Mapping[str, bytes | None], node: str, digest: str) -> list[Any]:
    body = nodes.get(node)
    if body is None:
        raise NotProven(f"node `{node}` is missing")
    if node_digest(body) != digest:
        raise NotProven(f"node `{node}` is not the one that its parent names")
    # What has the right digest was written by `grown`: it can be read.
    return list(orjson.loads(body))
