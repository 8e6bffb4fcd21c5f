"""Checks the policy documents of a file: always, that each document that a decision cites is there
and unaltered; with `--recompute`, also that each decision follows from its documents. Writes its
findings into the outcome."""

from control_api.verifier.file.derivation import Derivation
from control_api.verifier.file.documents import Documents
from control_api.verifier.file.pool import Walked
from control_api.verifier.outcome import NotDerived, Outcome
from policies.trail.findings import Finding


class PolicyCheck:
    """One walk over verified lines: `line` for each document, then `take` for the chunk of lines in
    which it stands."""

    def __init__(self, outcome: Outcome, *, recompute: bool) -> None:
        self._outcome = outcome
        self._documents = Documents()
        self._derived = Derivation(self._documents) if recompute else None

    def line(self, document: bytes, at: int) -> Finding | None:
        """A document's line, before entry `at`."""
        return self._documents.line(document, at)

    def take(self, walked: Walked, with_openings: bool) -> None:
        """A chunk of lines whose entries were verified."""
        for finding in self._documents.cited(walked, with_openings):
            self._outcome.add(finding)
        if self._derived is not None:
            for finding in self._derived.feed(walked.chunk, with_openings):
                self._outcome.add(finding)

    def count(self) -> None:
        """Write how many decisions were derived, whatever else was found."""
        if self._derived is not None:
            self._outcome.recomputed = self._derived.counts.recomputed
            self._outcome.not_recomputable = self._derived.counts.not_recomputable

    def conclude(self, cutoff: int, *, restored: bool) -> None:
        """Judge what is missing at the end of a whole file; as `Documents.conclude`."""
        derived, outcome = self._derived, self._outcome
        unheld = 0 if derived is None else derived.unheld
        found, gone = self._documents.conclude(cutoff, restored=restored, unheld=unheld)
        for finding in found:
            outcome.add(finding)
        outcome.documents = self._documents.count
        outcome.documents_gone = gone
        outcome.not_derived = self._not_derived(gone)

    def _not_derived(self, gone: list[NotDerived]) -> list[NotDerived]:
        if self._derived is not None:
            return gone + self._derived.not_derived()
        # Without `--recompute`, a document that the log says is gone leaves no decision unchecked.
        # One that was dropped at the bound on memory does: its digest was not compared.
        return [each for each in gone if self._documents.is_bound(each)]
