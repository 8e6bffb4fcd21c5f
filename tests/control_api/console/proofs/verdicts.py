"""What the console's modules say in Node, and what `policies` says of the same cases, in one form:
False for whatever is refused, otherwise the result."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from policies.ground.canonical import b64, unb64
from policies.ground.signing import Endorsement
from policies.trail import checkpoint
from policies.trail.commitment import opening_matches
from policies.trail.entry import EntryFinding, check_entry, load_entry, time_of
from policies.trail.merkle_tree import leaf_hash
from policies.trail.proofs import signed_note, tree_proofs
from policies.trail.proofs.signed_note import VerifierKey
from policies.trail.proofs.tree_proofs import TlogProof
from tests import servers
from tests.support.stack import ROOT

MODULES = ROOT / "control_api" / "console" / "static"
SCRIPT = Path(__file__).with_name("node_verifier.mjs")
Case = tuple[Any, ...]


def in_browser(cases: Sequence[Case]) -> list[Any]:
    """The verdicts of the modules that the console sends, one process for all cases."""
    return _run(SCRIPT, cases)


def on_the_page(visit: dict[str, Any]) -> list[Any]:
    """What the decision page's script says on a visit: `node_page.mjs` says of what."""
    return _run(SCRIPT.with_name("node_page.mjs"), visit)


def _run(script: Path, given: object) -> list[Any]:
    done = subprocess.run(
        [servers.need("node"), script, MODULES],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: list[Any] = json.loads(done.stdout)
    return told


def in_python(case: Case) -> Any:
    """The verdict of the offline verifier's parts."""
    name, *given = case
    try:
        return _VERDICTS[name](*given)
    except (ValueError, TypeError, LookupError, EntryFinding):
        return False


def _checkpoint(note: str, origin: str, keys: list[str], witnesses: list[str]) -> Any:
    found = checkpoint.read(note, origin, [unb64(each) for each in keys])
    known = [VerifierKey.parse(each) for each in witnesses]
    signed = signed_note.verified_cosignatures(signed_note.parse(note), known)
    told = [[each.key.name, str(each.signed_at)] for each in signed]
    return {"size": str(found.size), "root": b64(found.root), "witnesses": told}


def _key(text: str) -> Any:
    key = VerifierKey.parse(text)
    return [key.name, key.type, b64(key.public)]


def _entry(raw: str) -> bool:
    stored = unb64(raw)
    check_entry(stored, load_entry(stored))
    return True


def _endorsed(pinned: str, chain: list[dict[str, str]]) -> list[str]:
    trusted = [unb64(pinned)]
    for wire in chain:
        each = Endorsement.from_wire(wire)
        if each.former == trusted[-1] and each.holds():
            trusted.append(each.next)
    return [b64(each) for each in trusted]


def _proof(text: str, origin: str, keys: list[str]) -> bool:
    proof = TlogProof.parse(text)
    entry = proof.extra or b""
    check_entry(entry, load_entry(entry))
    at = checkpoint.read(proof.note, origin, [unb64(each) for each in keys])
    return proof.proves(leaf_hash(entry), at.size, at.root)


def _raw(hashes: list[str]) -> list[bytes]:
    return [unb64(each) for each in hashes]


_VERDICTS: dict[str, Callable[..., Any]] = {
    "checkpoint": _checkpoint,
    "inclusion": lambda leaf, index, size, path, root: tree_proofs.proves_inclusion(
        unb64(leaf), int(index), int(size), _raw(path), unb64(root)
    ),
    "consistency": lambda old, old_root, new, new_root, path: tree_proofs.proves_consistency(
        int(old), unb64(old_root), int(new), unb64(new_root), _raw(path)
    ),
    "key": _key,
    "entry": _entry,
    "time": lambda raw: time_of(load_entry(unb64(raw))),
    "opening": opening_matches,
    "endorsed": _endorsed,
    "proof": _proof,
}
