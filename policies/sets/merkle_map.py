"""A policy set's documents as a Merkle map: one root digest covers them all, and three nodes prove
which document a name has, or that it has none.

    root      64 digests of branches
    branch    64 digests of buckets
    bucket    [[name, digest of the document], …] in order of name

The first 12 bits of a name's SHA-256 select its bucket. A digest is SHA-256 in hex; "" marks an
empty branch or bucket. A reader that gets the root's digest from a source it trusts may fetch nodes
and documents from one that it doesn't: if a document is dropped, withheld or replaced by an older
one, the nodes no longer lead to that digest. Knows nothing of signatures or storage.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from policies.ground.canonical import encode

FANOUT = 64
ROOT = "root"
EMPTY = ""
EMPTY_ROOT = encode([EMPTY] * FANOUT)


class NotProven(ValueError):
    """the nodes do not lead to the root's digest"""


def node_digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def path(name: str) -> tuple[str, str]:
    """Return the names of the branch node and the bucket node that hold a document's name."""
    first, second = hashlib.sha256(name.encode()).digest()[:2]
    # Six bits select the branch, the next six the bucket in it.
    branch, bucket = first >> 2, ((first & 3) << 4) | (second >> 4)
    return f"{branch:02x}", f"{branch:02x}.{bucket:02x}"


def nodes_of(names: Iterable[str]) -> set[str]:
    """Return the names of all nodes on the paths to these documents, the root included. They prove
    the documents, and change when one of the documents does."""
    return {ROOT}.union(*map(path, names))


def prove(root: str, nodes: Mapping[str, bytes | None], name: str) -> str | None:
    """Return the digest of the document `name`, or None if it is proven that there is none. `root`
    is the digest of the root node; `nodes` are the nodes' bytes. Raises `NotProven` if `nodes`
    prove neither."""
    branch, bucket = path(name)
    top = _children(nodes, ROOT, root)
    digest = top[_index(branch)]
    if digest == EMPTY:
        return None  # proven: a verified parent says that nothing is below it
    digest = _children(nodes, branch, digest)[_index(bucket[3:])]
    if digest == EMPTY:
        return None
    for entry, document in _load_verified(nodes, bucket, digest):
        if entry == name:
            return str(document)
    return None


def branches(nodes: Mapping[str, bytes | None], root: str) -> dict[str, str]:
    """Return the digests of all branches that are not empty, by the branch's name. Raises
    `NotProven` if the root node does not have the digest `root`."""
    return {f"{at:02x}": each for at, each in enumerate(_children(nodes, ROOT, root)) if each}


def buckets(nodes: Mapping[str, bytes | None], branch: str, digest: str) -> dict[str, str]:
    """Return the digests of all buckets of a branch that are not empty, by the bucket's name.
    Raises `NotProven` if the branch's node does not have this digest."""
    children = _children(nodes, branch, digest)
    return {f"{branch}.{at:02x}": each for at, each in enumerate(children) if each}


def entries(nodes: Mapping[str, bytes | None], bucket: str, digest: str) -> dict[str, str]:
    """Return the digests of all documents in a bucket, by the document's name. Raises `NotProven`
    if the bucket's node does not have this digest."""
    return dict(_load_verified(nodes, bucket, digest))


def updated_nodes(
    nodes: Mapping[str, bytes | None], changed: Mapping[str, str | None]
) -> dict[str, bytes | None]:
    """Return the nodes that change when these documents do, by their names. `changed` maps a
    document's name to its new digest, or to None if it was removed; in the result, None means that
    a node became empty. `nodes` holds the previous nodes that `nodes_of` lists, as far as they
    exist."""
    new: dict[str, bytes | None] = {}
    # Bottom up: a bucket's digest goes into its branch, a branch's digest into the root.
    buckets: dict[str, dict[str, str]] = {}
    branches: dict[str, list[str]] = {}
    for name, digest in changed.items():
        # Several changes may share a bucket: each node is loaded once, and hashed once at the end.
        branch, bucket = path(name)
        entries = buckets.setdefault(bucket, dict(_load(nodes.get(bucket), [])))
        if digest is None:
            entries.pop(name, None)
        else:
            entries[name] = digest
        branches.setdefault(branch, _load(nodes.get(branch), [EMPTY] * FANOUT))
    for bucket, entries in buckets.items():
        # Empty nodes disappear, so that one set of documents always has one root.
        new[bucket] = encode(sorted(entries.items())) if entries else None
        branches[bucket[:2]][_index(bucket[3:])] = _digest(new[bucket])
    top = _load(nodes.get(ROOT), [EMPTY] * FANOUT)
    for branch, digests in branches.items():
        new[branch] = encode(digests) if any(digests) else None
        top[_index(branch)] = _digest(new[branch])
    new[ROOT] = encode(top)
    return new


def _digest(body: bytes | None) -> str:
    return EMPTY if body is None else node_digest(body)


def _index(label: str) -> int:
    return int(label, 16)


def _load(body: bytes | None, empty: list[Any]) -> list[Any]:
    return list(empty) if body is None else list(orjson.loads(body))


def _children(nodes: Mapping[str, bytes | None], node: str, digest: str) -> list[str]:
    children = _load_verified(nodes, node, digest)
    if len(children) != FANOUT:
        raise NotProven(f"node `{node}` has {len(children)} children; expected {FANOUT}")
    return children


def _load_verified(nodes: Mapping[str, bytes | None], node: str, digest: str) -> list[Any]:
    body = nodes.get(node)
    if body is None:
        raise NotProven(f"node `{node}` is missing")
    if node_digest(body) != digest:
        raise NotProven(f"node `{node}` does not match the digest in its parent")
    # The digest proves that `updated_nodes` wrote these bytes, so they parse.
    return list(orjson.loads(body))
