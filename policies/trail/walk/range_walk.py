"""Verifies the lines of a range of an export, without knowing what precedes it.

    walk = RangeWalk()
    walk.feed(lines)                            stops at the first finding
    result = walk.result()                      `JoinedWalk.join` takes the results in order

What only the part before it can tell (is `prev` right? does a source continue?) is noted as a claim
of the range's first entry, or of a source's first record, for `JoinedWalk` to compare. Lines other
than entries are noted in order, with the tree as far as they stand.
"""

import hashlib
from array import array
from binascii import a2b_base64, b2a_base64
from collections.abc import Collection
from typing import Any

from policies.ground.canonical import b64, encode, micros
from policies.trail.commitment import committer
from policies.trail.findings import Finding, Reason
from policies.trail.log_file.coding import plain_entry
from policies.trail.record import MAX_ENTRY
from policies.trail.spool_chain import core_hash
from policies.trail.stored_entry import EntryFinding, check_entry, check_openings, load_entry
from policies.trail.walk.compact_range import CompactRange
from policies.trail.walk.erasures import KIND as REDACT
from policies.trail.walk.erasures import erased_ranges
from policies.trail.walk.faults import check_source, position_fault
from policies.trail.walk.known_line import ENTRY_AT, Known, match_line
from policies.trail.walk.range_result import BEFORE, Other, RangeResult, Source, SourceClaim, Start
from policies.trail.walk.silences import Silence, silence

POSITION = ("log", "seq", "prev", "ts")
_sha256 = hashlib.sha256
_user, _query = committer("user_id"), committer("query")

NOTABLE = ("purge", "incarnation")


class RangeWalk:
    """One walk over consecutive lines. All entries must belong to the log of the first."""

    def __init__(self, *, with_openings: bool = True, wanted: Collection[int] = ()) -> None:
        """`with_openings` says that each entry should have its openings beside it; `wanted` are the
        sizes at which the tree is asked for."""
        self._with_openings = with_openings
        self._wanted = frozenset(wanted)
        self._marks: list[tuple[int, tuple[bytes, ...]]] = []
        self._start: Start | None = None
        self._log = b""
        self._tree = CompactRange(0)
        self._leaf = b""
        self._prev = b""
        self._ts = b""
        self._second = b""
        self._decisions = self._without = 0
        self._sources: dict[Source, SourceClaim] = {}
        self._ids: list[int] = []
        self._missing: list[int] = []
        self._erased: list[tuple[int, int]] = []
        self._notable: list[tuple[int, str, dict[str, Any]]] = []
        self._others: list[Other] = []
        self._silences: list[Silence] = []
        self._finding: Finding | None = None

    def feed(self, lines: list[bytes], *, utf8: bool) -> bool:
        """Check lines until one fails. True if none did. `utf8` says that all are valid UTF-8."""
        for line in lines:
            known = match_line(line) if utf8 or _is_utf8(line) else None
            if (known is None or not self._known(line, known)) and not self._other(line):
                return False
        return True

    def result(self) -> RangeResult:
        self._ids.sort()
        return RangeResult(
            self._start, self._tree.end, self._tree.hashes, self._leaf, self._ts,
            self._decisions, self._without, self._sources, array("q", self._ids), self._missing,
            self._erased, self._notable, self._others, self._marks, self._silences, self._finding,
        )  # fmt: skip

    # --------------------------------------------------------------------------- the fast path

    def _known(self, line: bytes, known: Known) -> bool:
        """Take in a line in the known form if all holds; else leave everything as it was, for the
        full check to say what is wrong."""
        head, query, user, eid, log, masked, prev = known[0].groups()
        (seq_text, src, src_id, inst, n, src_prev, ts, _, opened, query_salt, query_value,
         user_salt, user_value) = known[1].groups()  # fmt: skip
        tree, seq = self._tree, int(seq_text)
        if self._start is None:
            tree = CompactRange(seq)
        elif seq != tree.end or prev != self._prev or ts < self._ts or log != self._log:
            return False
        raw_end = known[1].end(8)
        if raw_end - ENTRY_AT > MAX_ENTRY or (ts[:19] != self._second and not self._is_time(ts)):
            return False
        if (opened is not None) != self._with_openings:
            return False
        if opened is not None and not (
            _user(a2b_base64(user_salt), user_value) == a2b_base64(user)
            and _query_holds(query, query_salt, query_value)
        ):
            return False
        raw = line[ENTRY_AT:raw_end]
        claim, source = None, (src_id, inst)
        if src is not None:
            number = int(n)
            before = self._sources.get(source)
            if before is not None and (number != before.last_n + 1 or src_prev != before.last_hash):
                return False
            # The core is the entry without its place, whose four members are cut out.
            pub = line[known[0].end(7) + 1 : known[1].start(1) - 7]
            core = b'%b%b%b%b,"v":1}' % (head, masked, pub, src)
            hashed = b2a_base64(core_hash(core), newline=False)
            if before is None:
                claim = SourceClaim(seq, eid, number, src_prev, number, hashed)
            else:
                first_seq, first_eid, first_n, first_prev, _, _ = before
                claim = SourceClaim(first_seq, first_eid, first_n, first_prev, number, hashed)
        # From here on the entry counts.
        if self._start is None:
            self._start, self._tree, self._log = Start(seq, prev, ts, log, eid.decode()), tree, log
        if claim is not None:
            self._sources[source] = claim
        self._leaf = leaf = _sha256(b"\0" + raw).digest()
        tree.append(leaf)
        self._prev, self._ts = b2a_base64(leaf, newline=False), ts
        self._ids.append(hash(eid))
        self._decisions += 1
        self._without += opened is None
        if tree.end in self._wanted:
            self._marks.append((tree.end, tuple(tree.hashes)))
        return True

    def _is_time(self, ts: bytes) -> bool:
        try:
            micros(ts.decode())
        except ValueError:
            return False
        self._second = ts[:19]
        self._listen(ts)
        return True

    def _listen(self, ts: bytes) -> None:
        """Note the silence before an entry of the time `ts`. If that fails, the walk ends there."""
        if self._start is not None and self._ts[:13] != ts[:13]:
            found = silence(self._tree.end, self._ts.decode(), ts.decode())
            if found is not None and found not in self._silences[-1:]:
                self._silences.append(found)

    # --------------------------------------------------------------------------- the full check

    def _other(self, line: bytes) -> bool:
        """Check a line of any form. False if there is a finding."""
        parts = plain_entry(line, self._with_openings)
        if parts is None:
            end = BEFORE if self._start is None else self._tree.end
            self._others.append(Other(line, end, tuple(self._tree.hashes)))
            return True
        raw, openings = parts
        entry = None
        try:
            entry = load_entry(raw)
            self._entry(raw, entry, check_entry(raw, entry), openings)
        # The bytes may be anything: what decoding or a look-up raises on them is a finding too.
        except (EntryFinding, ValueError, TypeError, LookupError, AttributeError) as error:
            found, reason = f"not an entry: {error!r:.200}", Reason.NOT_AN_ENTRY
            if isinstance(error, EntryFinding):
                found, reason = str(error), error.reason
            seq = self._place(entry)
            eid = entry.get("eid") if isinstance(entry, dict) else None
            eid = eid if isinstance(eid, str) else None
            self._finding = Finding(seq, reason, f"seq {seq}: {found}", eid)
            return False
        return True

    def _place(self, entry: Any) -> int:
        """The place of an entry that fails: where it stands, as far as the range knows."""
        if self._start is not None:
            return self._tree.end
        seq = entry.get("seq") if isinstance(entry, dict) else None
        return seq if type(seq) is int and seq >= 0 else -1

    def _entry(
        self, raw: bytes, entry: dict[str, Any], sourced: bool, opened: bytes | None
    ) -> None:
        seq, log = entry["seq"], encode(entry["log"])
        prev, ts = entry["prev"].encode(), entry["ts"].encode()
        # Another version is another log's, whatever it says.
        log = b',"log":' + log if raw.endswith(b',"v":1}') else b""
        if type(seq) is not int or seq < 0:
            raise position_fault(entry, self._tree.end, raw)
        place = (self._tree.end, self._log, self._prev)
        if self._start is not None and ((seq, log, prev) != place or ts < self._ts):
            same = log == self._log
            raise position_fault(entry, self._tree.end, raw, same_log=same, prev=self._prev)
        claim = self._claim(entry, seq) if sourced else None
        self._listen(ts)
        if self._start is None:
            self._start = Start(seq, prev, ts, log, entry["eid"])
            self._tree, self._log = CompactRange(seq), log
        if claim is not None:
            self._sources[claim[0]] = claim[1]
        # From here on the claims stand, even if the openings fail: what the part before says about
        # the place and the source comes first.
        missing = None if opened is None else check_openings(entry, opened)
        erased = erased_ranges(entry) if entry["kind"] == REDACT else []
        if missing is not None:
            self._missing.append(seq)
        self._erased += erased
        if entry["kind"] in NOTABLE:
            self._notable.append((seq, entry["kind"], entry["pub"]))
        self._leaf = leaf = _sha256(b"\0" + raw).digest()
        self._tree.append(leaf)
        self._prev, self._ts = b2a_base64(leaf, newline=False), ts
        self._ids.append(hash(entry["eid"].encode()))
        self._decisions += entry["kind"] == "decision"
        self._without += opened is None and bool(entry["cm"])
        if self._tree.end in self._wanted:
            self._marks.append((self._tree.end, tuple(self._tree.hashes)))

    def _claim(self, entry: dict[str, Any], seq: int) -> tuple[Source, SourceClaim]:
        src = entry["src"]
        source = (src["id"].encode(), src["inst"].encode())
        n, prev = src["n"], src["prev"].encode()
        before = self._sources.get(source)
        if before is not None:
            check_source(src, before.last_n, before.last_hash)
        core = encode({name: entry[name] for name in entry if name not in POSITION})
        hashed = b64(core_hash(core)).encode()
        if before is not None:
            return source, before._replace(last_n=n, last_hash=hashed)
        return source, SourceClaim(seq, entry["eid"].encode(), n, prev, n, hashed)


def _query_holds(committed: bytes | None, salt: bytes | None, value: bytes) -> bool:
    """Whether the opening of `query` matches its commitment. Neither may be there alone. The known
    form has one spelling of base64, so comparing the bytes is enough."""
    if committed is None or salt is None:
        return committed is salt
    return _query(a2b_base64(salt), value) == a2b_base64(committed)


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
