"""What an agent's row and status mean for the keys that its pods enrolled for.

    approved, with a workload     pods may enrol: the agent has a generation, and a document says it
    anything else                 no document: the keys of every earlier generation are dead

A key is live only while its agent's document names the generation that the key was issued in. So
one document, published with the change itself, ends the keys of any number of pods at once, in this
service and in every connected sidecar. Pure.
"""

from dataclasses import replace

from control_api.store.queries.agents import StoredAgent
from policies.ground.ids import prefixed
from policies.sets.policy_set import (
    agent_document,
    agent_name,
    enrolment_document,
    enrolment_name,
)


def with_generation(before: StoredAgent | None, after: StoredAgent, entropy: bytes) -> StoredAgent:
    """`after` with the generation that its pods' keys belong to. `entropy` is 16 random bytes."""
    if after.workload is None or after.status != "approved":
        return replace(after, enrolment=None)
    # INVARIANT: a generation never comes back. An agent that was suspended gets a new one when it
    # is approved again, so a key that was copied before stays dead.
    if before is not None and before.enrolment and before.workload == after.workload:
        return replace(after, enrolment=before.enrolment)
    return replace(after, enrolment=prefixed("enr_", entropy))


def agent_documents(before: StoredAgent | None, after: StoredAgent) -> dict[str, bytes | None]:
    """The documents that follow from a change of an agent."""
    documents: dict[str, bytes | None] = {
        agent_name(after.agent_id): agent_document(after.published())
    }
    if after.enrolment is not None:
        body = enrolment_document(after.enrolment, after.agent_role)
        documents[enrolment_name(after.agent_id)] = body
    elif before is not None and before.enrolment is not None:
        documents[enrolment_name(after.agent_id)] = None
    return documents
