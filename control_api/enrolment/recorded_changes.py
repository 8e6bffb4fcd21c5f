"""What the log records of a change of an agent, and of keys that a pod enrolled for. Pure."""

from control_api.store.queries.agents import StoredAgent
from control_api.store.queries.enrolled_keys import EnrolledKey
from control_api.store.transaction import Transaction
from policies.sets.policy_set import agent_name, document_digest, key_document
from policies.trail.change import ObjectChange, PublishedAs

FREE_TEXT = ("description", "display_name", "framework", "owner")
"""Members of an agent that the log never shows: nothing is decided by them, and any may name a
person."""


def given_reason(reason: str | None) -> dict[str, str]:
    """The member of a change's detail that says why it was made, if the caller said so."""
    return {} if reason is None else {"reason": reason}


def agent_change(tx: Transaction, before: StoredAgent | None, after: StoredAgent) -> ObjectChange:
    """A change of an agent that `tx` has published."""
    published = tx.published(agent_name(after.agent_id))
    shown = None if before is None else before.shown()
    return ObjectChange(shown, after.shown(), FREE_TEXT, published)


def issued_keys(tx: Transaction, *keys: EnrolledKey) -> ObjectChange:
    """The keys as decisions cite them. They have no document, but the facts of decisions are held
    against this as against one."""
    revision = tx.revision or 0
    issued = [
        PublishedAs(f"key/{row.key_id}", document_digest(key_document(row.key())), revision)
        for row in keys
    ]
    return ObjectChange(None, None, published=issued)
