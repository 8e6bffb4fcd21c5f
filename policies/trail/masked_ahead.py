"""Masks the texts of retrievals that may be personal, before the retrievals are decided.

A decision and its record are made in one turn of the event loop, so that the policy set can't
change in between. Masking must not be part of that turn: a caller chooses the text, and so how long
masking takes.
"""

from collections.abc import Sequence

from policies.ground.canonical import MAX_IDENTIFIER
from policies.ground.masking import Masked, MaskingTurns
from policies.retrieval import Retrieval
from policies.statement import StatementMark, as_masked, maskable
from policies.trail.record import masked_user


async def masked_ahead(
    turns: MaskingTurns, retrievals: Sequence[Retrieval], *, urgent: bool = False
) -> list[Retrieval]:
    """Return the retrievals with their masked texts in `masked`, and in that of their statement,
    where `decision_record` finds them. Each different text is masked once, one after the other. If
    `urgent` is true, they come before the texts of other calls."""
    known: dict[str, Masked] = {}
    parameters: dict[str, Masked] = {}
    made: list[Retrieval] = []
    for each in retrievals:
        known.update(each.masked)
        masked: list[tuple[str, Masked]] = []
        for text in (each.user_id, each.query):
            if text is None:
                continue
            if text not in known:
                known[text] = await turns.text(text, urgent=urgent)
            masked.append((text, known[text]))
        mark = await _masked_mark(turns, each.statement, parameters, urgent)
        made.append(each._replace(masked=tuple(masked), statement=mark))
    return made


async def _masked_mark(
    turns: MaskingTurns, mark: StatementMark | None, known: dict[str, Masked], urgent: bool
) -> StatementMark | None:
    text = None if mark is None else mark.parameters
    if mark is None or text is None:
        return mark
    if text not in known:
        known[text] = as_masked(text, await turns.json(maskable(text), urgent=urgent))
    return mark._replace(masked=known[text])


def recorded_user(retrieval: Retrieval) -> str:
    """Return the user id of a retrieval as `masked_user` would, from `masked` if it is masked
    there."""
    masked = dict(retrieval.masked).get(retrieval.user_id)
    return masked_user(retrieval.user_id) if masked is None else masked.text[:MAX_IDENTIFIER]
