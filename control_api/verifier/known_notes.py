"""Compares a log with checkpoints from outside: those of `--checkpoint`, and the one that an
earlier run pinned. The log must contain each."""

from collections.abc import Mapping, Sequence

from control_api.verifier.checkpoint_judge import CheckpointJudge
from control_api.verifier.outcome import NotCompared, Outcome, Unusable
from policies.trail.checkpoint import Checkpoint
from policies.trail.findings import Finding, Reason
from policies.trail.merkle_tree import Frontier
from policies.trail.proofs.signed_note import Note
from policies.trail.proofs.subtree import frontier_nodes


class KnownNotes:
    """The notes from outside on one log, whose newest origin is `origin`."""

    def __init__(
        self, judge: CheckpointJudge, origin: str, texts: Sequence[str], *, to_end: bool = False
    ) -> None:
        """`to_end` says that all that the log has was asked for, so that no part can have been cut
        off. Raises `Unusable` for a text that is no checkpoint of this log: it comes from the
        arguments."""
        self._judge, self._origin, self._given = judge, origin, len(texts)
        self._to_end = to_end
        self._notes: list[tuple[Note, Checkpoint]] = []
        for text in texts:
            found = judge.read(text, None)
            if isinstance(found, Finding):
                raise Unusable(f"--checkpoint: {found.message}")
            self._notes.append(found)

    def add(self, text: str, outcome: Outcome) -> None:
        """A note that the log's owner keeps. An unreadable one is a finding."""
        found = self._judge.read(text, None)
        if isinstance(found, Finding):
            outcome.add(found)
        else:
            self._notes.append(found)

    def sizes(self) -> frozenset[int]:
        """The sizes at which the tree's root is needed."""
        return frozenset(checkpoint.size for _, checkpoint in self._notes)

    def compare(self, outcome: Outcome, roots: Mapping[int, bytes], *, whole: bool) -> None:
        """Adds a finding for each note that the log contradicts. `roots` are the tree's roots at
        those sizes that the walk reached; `whole` says that it came to the end."""
        # A part may end before the note's size, but its last checkpoint tells how long the log is.
        newest = self._judge.newest
        reach = max(outcome.size, 0 if newest is None else newest.checkpoint.size)
        for number, (note, found) in enumerate(self._notes):
            size = found.size
            root = roots.get(size)
            if found.origin != self._origin:
                message = (
                    f"the checkpoint given is one of `{found.origin}`, and the log continues as "
                    f"`{self._origin}`"
                )
                outcome.add(Finding(None, Reason.INCARNATION, message))
            elif root is not None:
                if fault := self._judge.judge(note, found, root):
                    outcome.add(fault)
            elif size > reach and whole and (self._to_end or not _is_part(outcome)):
                message = f"the checkpoint given counts {size} entries, the log ends at {reach}"
                outcome.add(Finding(reach, Reason.LOG_BEHIND_CHECKPOINT, message))
            elif number < self._given:
                outcome.not_compared.append(NotCompared(size, _why_not(outcome, size, whole=whole)))


_UNPROVEN = (
    ", and only the file's header says that it is a part, which no key signs: a log that lost what "
    "followed may say so too. To tell, compare an export of the whole log with this checkpoint"
)


def _is_part(outcome: Outcome) -> bool:
    """Whether a range of the log was exported. The log may have been signed further since, so that
    it is shorter than a checkpoint from outside says nothing. Who rolled a log back may call the
    rest a part as well, so such a checkpoint is then not compared, and never passed over."""
    return _is_shown_part(outcome) or outcome.part


def _is_shown_part(outcome: Outcome) -> bool:
    """Return whether a file is a part by what it holds, and not only by what its header says."""
    return outcome.first > outcome.oldest or not outcome.to_end


def _why_not(outcome: Outcome, size: int, *, whole: bool) -> str:
    if size >= outcome.first and not whole:
        return "lies outside of what was verified"
    if size >= outcome.first:
        return "lies behind this part of the log" + ("" if _is_shown_part(outcome) else _UNPROVEN)
    if outcome.first > outcome.oldest:
        return "lies before this part of the log"
    return f"lies inside the purged prefix; the smallest to compare is one of {outcome.first}"


def earlier_roots(tree: Frontier) -> dict[int, bytes]:
    """The roots of the smaller trees that follow from this one's frontier alone: those of its
    largest complete subtree, of its two largest, and so on; and its own."""
    roots, size = {0: Frontier().root()}, 0
    for count, node in enumerate(frontier_nodes(tree.size), 1):
        size += 1 << node.level
        roots[size] = Frontier(size, tree.hashes[:count]).root()
    return roots
