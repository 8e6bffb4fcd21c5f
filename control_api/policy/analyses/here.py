"""Answers small questions about policies alone in this process, in a few milliseconds: a process of
their own takes 0.2 s to start, if none waits. Larger ones go there."""

from collections.abc import Callable, Mapping, Sequence

from control_api.policy.analyses.process import Analyses, Job
from control_api.policy.analyses.questions import (
    access_by_policies,
    candidate_review,
    diff,
    matrix_within,
    review,
)
from policies.analysis.names import TooManyClasses

MAX_BYTES = 32 * 1024
"""The policies that a small question may be about."""
MAX_STEPS = 4_000
"""The work that it may take for each role, about 2 ms."""
MAX_TRIES = 20
"""How often a review may take that work: for each role, and each guardrail on it."""
MAX_BODY = 8 * 1024
"""The body of a request that is decoded here: a bad one has a complaint about each of its items."""
MAX_WILDCARDS = 200
"""How many `*` and `?` it may have in all: what compares two patterns takes the product of their
lengths, and is not counted among the steps."""

_SMALL: Mapping[str, Callable[[Job, int], bytes]] = {
    "access_by_policies": access_by_policies,
    "matrix": matrix_within,
    "diff": diff,
    "review": review,
    "candidate_review": candidate_review,
}


async def answer(analyses: Analyses, tenant_id: str, job: Job, tries: int = 1) -> bytes:
    """The JSON that answers one of these questions. Raises as `Analyses.answer` does."""
    if tries <= MAX_TRIES and _is_small(job.parts):
        try:
            return _SMALL[job.question](job, MAX_STEPS)
        except TooManyClasses:
            pass  # a question of few policies, but not a small one
    return await analyses.answer(tenant_id, job)


def _is_small(parts: Sequence[bytes]) -> bool:
    wildcards = sum(part.count(b"*") + part.count(b"?") for part in parts)
    return sum(map(len, parts)) <= MAX_BYTES and wildcards <= MAX_WILDCARDS
