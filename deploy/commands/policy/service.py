"""Asks a running service for the commands of `sluice policy`, with the same options and variables
as the operator's commands (`deploy/commands/client`). Also finds the policies that were in force at
a past time.

    add_service(parser)            --url, --key-file, --ca
    api = connect(options)
    api.request("POST", "/v1/policies/diff", body={"policies": […]}).body

`options.environ` is the environment, which `__main__` sets.

For a past time, each policy follows from its recorded changes in the audit trail:

    a change up to then       the policy is as the last of these changes left it
    only changes after it     it is as it was before the first of these; its own change was purged
    no change at all          it is as it is now, if it existed then; its change was purged

A proof of such a change proves the version and its time. It does not prove that no other change
came in between: only a verification of the whole log does.
"""

import argparse
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from deploy.commands.policy.sources import Unusable
from policies.definitions.model import Policy
from policies.ground.canonical import NotCanonical, micros, rfc3339, unb64
from policies.ground.process import api_client
from policies.ground.process.api_client import (
    URL,
    ControlApiClient,
    RequestRefused,
    ServiceUnusable,
    UnusableArguments,
    segment,
)
from policies.ground.signing import Endorsement
from policies.trail import checkpoint
from policies.trail.change import object_digest
from policies.trail.merkle_tree import leaf_hash
from policies.trail.proofs.signed_note import (
    ED25519,
    NOT_PUBLIC,
    BadKey,
    BadNote,
    VerifierKey,
    is_private_half,
    is_private_key,
)
from policies.trail.proofs.tree_proofs import MAX_TEXT, BadProof, TlogProof

_NO_KEY = "name a file with an API key: --key-file or SLUICE_KEY_FILE"


def add_service(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a service: its address, the key file and the certificate
    authority."""
    group = parser.add_argument_group("a running service")
    group.add_argument("--url", help=f"address of the control API (SLUICE_URL; default {URL})")
    # No option for the key itself: every user of the machine can read a process's arguments.
    group.add_argument(
        "--key-file",
        metavar="FILE",
        help="a file with an API key, or the control API's first-start.json (SLUICE_KEY_FILE)",
    )
    group.add_argument(
        "--ca", metavar="FILE", help="certificate authority to trust, for https (SLUICE_CA)"
    )


def names_service(options: argparse.Namespace) -> bool:
    """Return whether the options or the environment name a service."""
    return bool(options.url or options.environ.get("SLUICE_URL"))


def connect(options: argparse.Namespace) -> ControlApiClient:
    """Return a client for the service that the options name, or else the environment, or else the
    default address on this host. Raises `UnusableArguments`; its message never holds a key."""
    api = api_client.connect(options.environ, options.url, options.key_file, options.ca)
    if api.key is None:
        raise UnusableArguments(_NO_KEY)
    return api


CHANGES = "/v1/audit/changes"
POLICIES = "/v1/policies"
_ADDED = ("policy_id", "version", "user_modified", "file", "changed_by", "created_at", "updated_at")
"""The fields of a policy that the service adds to the author's fields."""

_BEGINS, _ENDS = ("created", "added"), ("deleted", "removed")
"""The recorded actions before which a policy did not exist, and those after which it no longer
exists."""


class PolicyInForce(NamedTuple):
    """A policy that was in force at the time asked for. `body` is the policy as a request sets it.
    `change` is the recorded change that put it in force, None if that entry was purged."""

    policy_id: str
    body: dict[str, Any]
    change: dict[str, Any] | None

    def policy(self) -> Policy:
        """Return the policy in the form that the analysis takes. Its version is 0, since the
        analysis does not use it."""
        return Policy.from_wire({**self.body, "policy_id": self.policy_id, "version": 0})


def in_force(api: ControlApiClient, at: int) -> list[PolicyInForce]:
    """Return the policies in force at `at` (microseconds since 1970 UTC), sorted by id. Raises
    `ServiceUnusable`."""
    until: dict[str, dict[str, Any]] = {}
    since: dict[str, dict[str, Any]] = {}
    try:
        for change in _all(api, CHANGES, {"object_type": "policy"}):
            # Newest first: of those until then the first one counts, of those since the last.
            if micros(change["timestamp"]) > at:
                since[change["object_id"]] = change
            else:
                until.setdefault(change["object_id"], change)
        ended = {id_ for id_, each in until.items() if each["action"] in _ENDS}
        held = [
            PolicyInForce(id_, _body(until[id_], "after"), until[id_])
            for id_ in until.keys() - ended
        ]
        earlier = {id_ for id_, each in since.items() if each["action"] not in _BEGINS}
        for id_ in earlier - until.keys():
            held.append(PolicyInForce(id_, _body(since[id_], "before"), None))
        for policy in _all(api, POLICIES, {}):
            if policy["policy_id"] not in {*until, *since} and micros(policy["created_at"]) <= at:
                body = {name: policy[name] for name in policy if name not in _ADDED}
                held.append(PolicyInForce(policy["policy_id"], body, None))
    except (KeyError, TypeError, NotCanonical) as error:
        raise ServiceUnusable("the service's lists have another form: is it older?") from error
    return sorted(held, key=lambda each: each.policy_id)


def beginning(api: ControlApiClient, at: int) -> str | None:
    """Return the time of the oldest change in the audit trail if that is later than `at`: the trail
    then says nothing about `at`. Otherwise return None. Raises `ServiceUnusable`."""
    try:
        until = rfc3339(at + 1)
        if any(True for _ in _all(api, CHANGES, {"to": until})):
            return None
        newest_first = [str(each["timestamp"]) for each in _all(api, CHANGES, {})]
        return newest_first[-1] if newest_first else None
    except (KeyError, TypeError) as error:
        raise ServiceUnusable("the service's lists have another form: is it older?") from error


def _body(change: dict[str, Any], side: str) -> dict[str, Any]:
    body: dict[str, Any] | None = change[side]
    if body is None:
        raise ServiceUnusable(
            f"what policy `{change['object_id']}` was at {change['timestamp']} is not known: a "
            "version of before recorded the change, or the policy's history is not what the audit "
            "trail recorded (`sluice verify` says so)"
        )
    return body


def _all(
    api: ControlApiClient, path: str, query: dict[str, str | None]
) -> Iterator[dict[str, Any]]:
    for page in api.pages(path, query):
        yield from page


KEYS = "/v1/audit/log-keys"
_MAX_KEY = 4096
_KEY_BYTES = 32


class LogKeys(NamedTuple):
    """The public keys whose signatures are accepted. `pinned` is True if they follow from a key
    that the caller gave, False if the service itself named them."""

    publics: frozenset[bytes]
    pinned: bool


class Proof(NamedTuple):
    """The result of proving a change: its version, its entry's number and the size of the
    checkpoint that covers the entry. If it is not proven, only `why` is set, with the reason."""

    version: int | None = None
    seq: int | None = None
    checkpoint_size: int | None = None
    why: str | None = None


class _NotProven(Exception):
    """the service's proof does not prove it; the message says why"""


def read_keys(api: ControlApiClient, pinned: str | None) -> LogKeys:
    """Return the keys that sign the log. With `pinned` (a public key in base64, a verifier key, or
    a file with one) these are that key and the successors that it endorsed; otherwise the keys that
    the service names. Raises `Unusable`, also for a private key, and `ServiceUnusable`."""
    given = None if pinned is None else _public(pinned)
    keys = api.request("GET", KEYS).body
    named = unb64(keys["log_key"])
    history = [Endorsement.from_wire(wire) for wire in keys["log_key_history"]]
    claimed = {named, *(each.former for each in history), *(each.next for each in history)}
    # A seed alone looks like a public key: only the log that it belongs to tells it.
    if given is not None and is_private_half([given], claimed):
        raise Unusable(f"--log-key: {NOT_PUBLIC}")
    publics = {named if given is None else given}
    for each in history:
        if each.former in publics and each.holds():
            publics.add(each.next)
    return LogKeys(frozenset(publics), pinned is not None)


def prove(
    api: ControlApiClient, keys: LogKeys, change: dict[str, Any], body: dict[str, Any]
) -> Proof:
    """Prove from the audit trail that the recorded `change` left the policy with this `body`; if it
    can't be proven, the result says why. Raises `ServiceUnusable` if the service does not
    answer."""
    try:
        with api.stream(f"/v1/audit/proof/{segment(change['event_id'])}") as answer:
            text = answer.read(MAX_TEXT + 1).decode()
    except RequestRefused as refused:
        if refused.status != 409:
            raise
        return Proof(why="no checkpoint covers its entry yet: ask again in a few seconds")
    try:
        return _checked(text, keys, change, body)
    except (BadProof, BadNote, NotCanonical, ValueError, LookupError, TypeError) as error:
        return Proof(why=f"the proof does not hold: {error}")
    except _NotProven as error:
        return Proof(why=str(error))


def _checked(text: str, keys: LogKeys, change: dict[str, Any], body: dict[str, Any]) -> Proof:
    proof = TlogProof.parse(text)
    signed = checkpoint.read(proof.note, checkpoint.unverified(proof.note).origin, keys.publics)
    raw = proof.extra or b""
    if not proof.proves(leaf_hash(raw), signed.size, signed.root):
        raise _NotProven("its entry is not in the signed log")
    entry = orjson.loads(raw)
    pub = entry["pub"]
    if (entry["kind"], entry["ts"], pub["target"]) != (
        "change",
        change["timestamp"],
        change["object_id"],
    ):
        raise _NotProven("the entry that the service proves is of another change")
    if pub["after_sha256"] != object_digest(body):
        raise _NotProven("the policy is not the one that its entry recorded")
    return Proof(pub["detail"]["version"], entry["seq"], signed.size)


def _of_verifier_key(words: str) -> bytes:
    key = VerifierKey.parse(words)
    if key.type != ED25519:
        raise BadKey("it signs no log")
    return key.public


def _public(text: str) -> bytes:
    try:
        path = Path(text)
        words = (path.read_text("utf-8")[:_MAX_KEY] if path.is_file() else text).strip()
        if is_private_key(words):
            raise Unusable(f"--log-key: {NOT_PUBLIC}")
        for read in (unb64, _of_verifier_key):
            # Base64 may have as many `+` as a verifier key.
            with suppress(BadKey, NotCanonical):
                if len(public := read(words)) == _KEY_BYTES:
                    return public
    except (OSError, UnicodeDecodeError):
        pass
    raise Unusable(
        "--log-key is neither a public key in base64 or a verifier key, nor a file with one: "
        "`sluice log-key` prints it"
    )
