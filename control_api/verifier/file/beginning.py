"""Reads the first lines of an export: the header, and the tree of what precedes a part."""

from control_api.verifier.file.source import LineChunks
from control_api.verifier.outcome import Unusable
from policies.trail.findings import Finding, Reason
from policies.trail.log_file.coding import BadHeader, BadLine, parse_line
from policies.trail.log_file.lines import MAX_OTHER, FrontierLine, HeaderLine, Line
from policies.trail.merkle_tree import Frontier


def read_header(chunks: LineChunks, subject: str) -> HeaderLine:
    """Raises `Unusable` if the file does not begin like an export."""
    raw = chunks.line(MAX_OTHER)
    # A parser would need many times the line's length, before anything is known of the file.
    if len(chunks.rest if raw is None else raw) > MAX_OTHER:
        raise Unusable(
            f"{subject} can't be verified: its first line is longer than {MAX_OTHER} bytes, which "
            "no export's header is"
        )
    try:
        line = None if raw is None else parse_line(raw)
    except BadHeader as error:
        raise Unusable(f"{subject} can't be verified: {error}") from error
    except BadLine:
        line = None
    if isinstance(line, HeaderLine):
        return line
    why = "" if chunks.fault is None else f": {chunks.fault}"
    raise Unusable(
        f"{subject} is not an export of a log: it does not begin with "
        f'{{"format":"sluice-log/1",…}}{why}'
    )


def read_frontier(chunks: LineChunks, header: HeaderLine) -> Frontier | Finding:
    """The tree before the first entry; a finding if a part does not say it."""
    first = header.first
    if not first:
        return Frontier()
    raw = chunks.line()
    if raw is None:
        return Finding(None, Reason.FILE_TRUNCATED, "the file ends after its first line")
    line = _parsed(raw)
    if isinstance(line, FrontierLine) and line.size == first:
        try:
            return Frontier.from_bytes(first, b"".join(line.hashes))
        except ValueError:
            pass  # it does not fit its size
    message = f"line 2: the frontier of the {first} entries before the file is missing or wrong"
    return Finding(None, Reason.FILE_MALFORMED, message)


def _parsed(raw: bytes | None) -> Line | None:
    try:
        return None if raw is None else parse_line(raw)
    except BadLine:
        return None
