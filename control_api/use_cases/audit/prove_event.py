"""Proves that an event, or any other entry, is in the log."""

from collections.abc import Mapping
from typing import ClassVar

import orjson

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.log.proofs.prove import prove_entry
from control_api.requests.base import Identifier, LogSize, RequestModel
from control_api.responses.audit import Document
from control_api.responses.proofs import InclusionProof
from control_api.store.queries import log_keys
from policies.ground.canonical import b64
from policies.trail.proofs.tlog_proof import TlogProof

JSON = "application/json"


class ProofRequest(RequestModel):
    """`size` selects a checkpoint; by default it is the latest."""

    in_header: ClassVar[Mapping[str, str]] = {"accept": "Accept"}

    event_id: Identifier
    size: LogSize | None = None
    accept: str = ""

    def wants_json(self) -> bool:
        """Whether `Accept` lists JSON. Anything else gets the text."""
        listed = (each.partition(";") for each in self.accept.lower().split(","))
        return any(
            name.strip() == JSON and rest.replace(" ", "") not in ("q=0", "q=0.0")
            for name, _, rest in listed
        )


async def prove_event(
    app: AppContext, caller: Caller, request: ProofRequest
) -> Document | InclusionProof:
    """Prove that an event is in the log, as a C2SP `tlog-proof` that can be checked offline.

    The text's `extra` line holds the entry. With `Accept: application/json` the answer also has the
    openings. Takes the id of any entry. 409 with `Retry-After` means that no checkpoint covers the
    entry yet: try again a few seconds later.
    """
    publics = await log_keys.trusted(app.store, app.ring)
    proven = await prove_entry(app.store, caller.tenant_id, request.event_id, request.size, publics)
    if request.wants_json():
        return InclusionProof(
            orjson.Fragment(proven.entry),
            proven.seq,
            orjson.Fragment(proven.openings or b"{}"),
            [b64(each) for each in proven.hashes],
            proven.note,
        )
    # The text carries the entry, so that it can be checked by itself. It never carries openings:
    # who passes a proof on passes on nothing that an erasure could not reach.
    text = TlogProof(proven.seq, tuple(proven.hashes), proven.note, proven.entry).text()
    return Document("text/plain; charset=utf-8", text.encode())
