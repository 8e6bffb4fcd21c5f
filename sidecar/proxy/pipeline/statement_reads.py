"""One execution of a statement, such as one of SQL, for the records of the sources that it reads.
Knows no language of statements, and decides nothing."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from policies.statement import Look, StatementMark, parameters_text
from sidecar.protocols.protocol import SourceRef


class StatementReads(NamedTuple):
    """A statement that is about to be executed, and where it was seen to read each source.

    `text` is recorded as the query of each record. `mark` is what the records have in common.
    `looks` is read at each decision, so the caller may go on filling it. A source that it lacks was
    named by the statement alone, before anybody looked.
    """

    text: str
    mark: StatementMark
    looks: Mapping[SourceRef, Look]

    @classmethod
    def of(
        cls,
        raw: bytes,
        statement_id: str,
        *,
        fingerprint: str | None = None,
        parameters: Sequence[str | bytes | None] = (),
        looks: Mapping[SourceRef, Look],
    ) -> "StatementReads":
        """Describe the execution `statement_id` (a new UUIDv7) of a statement. `raw` is its exact
        text in UTF-8; what is not is recorded as U+FFFD. `fingerprint` is None if the text can't be
        read; `parameters` are texts, binary values, or None for NULL."""
        digest = hashlib.sha256(raw).hexdigest()
        values = parameters_text(parameters)
        mark = StatementMark(statement_id, digest, fingerprint, parameters=values)
        return cls(raw.decode(errors="replace"), mark, looks)

    def mark_of(self, source: SourceRef) -> StatementMark:
        """Return the mark for the record about `source`."""
        return self.mark._replace(look=self.looks.get(source))
