"""Renders the page `report.html`: one file to read and print, without scripts and without any
resource from elsewhere.

The same wheel (the installed package) always renders the same report as the same bytes. The page
shows the wheel's SHA-256, so that anyone can repeat this.
"""

import hashlib
import html

from deploy.commands.report import rows
from deploy.commands.report.evidence import LEVELS, Evidence, ReportOutcome
from deploy.commands.report.rows import shown
from policies import __version__
from policies.ground.canonical import b64
from policies.ground.distribution import install_command, wheel_digest
from policies.trail import checkpoint
from policies.trail.verdict.outcome import Outcome

CSS = """
body{font:15px/1.5 system-ui,sans-serif;color:#1a1a1a;background:#fff;max-width:62rem;
margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem;margin-bottom:.2rem}h2{font-size:1.15rem;margin-top:2rem;
border-bottom:1px solid #ccc}
table{border-collapse:collapse;width:100%;table-layout:fixed}
th,td{text-align:left;vertical-align:top;padding:.3rem .5rem;border-bottom:1px solid #ddd;
overflow-wrap:anywhere}
th{background:#f3f3f3}th.n{width:6.5rem}th.t{width:15.5rem}th.s{width:9rem}
table.facts th{width:10rem;background:none;font-weight:600}
.ALLOW{color:#0a5c2b;font-weight:600}.DENY{color:#9b1c1c;font-weight:600}
.mark{font:700 .75em monospace;color:#7a1f9e;border:1px solid #7a1f9e;border-radius:3px;
padding:0 .2em;margin:0 .1em}
pre{background:#f3f3f3;padding:.7rem;white-space:pre-wrap;overflow-wrap:anywhere}
.small{color:#555;font-size:.85em}.yes::before{content:"\\2713\\a0"}.no::before{content:"\\2717\\a0"}
@media print{body{max-width:none;margin:0;font-size:10pt}h2{break-after:avoid}tr{break-inside:avoid}
thead{display:table-header-group}}
"""
_HASH = b64(hashlib.sha256(CSS.encode()).digest())
POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'"
"""The page's Content-Security-Policy. With it, not even markup that an attacker smuggled into a
value could load, run or send anything."""


_NO_RELEASE = (
    "Nothing is recorded. A sidecar records what it released; the control API only decides, and "
    "knows no more than its callers report."
)
_N, _T, _S = '<th class="n">', '<th class="t">', '<th class="s">'


def page(report: Evidence, checked: ReportOutcome, export: Outcome) -> bytes:
    """Render the page on a report. `checked` is the result of verifying the report's JSON, `export`
    that of verifying the export it was made from; both must be valid."""
    entries = rows.entries_of(report.items)
    parts = [_head(report), _facts(report, checked, len(entries))]
    if not entries:
        parts.append(
            "<h2>Nothing was found</h2><p>No entry of the export matches what was asked for. "
            "That says nothing of what the export does not contain. A user who was erased "
            "is not found either.</p>"
        )
    else:
        parts += _tables(entries)
    parts += [_proven(checked, export), _commands(export)]
    if entries:
        parts.append(
            _table("The entries' hashes", [_N + "No.", "Id", "Leaf hash (SHA-256, RFC 9162)"],
                   rows.digests(entries))
        )  # fmt: skip
    return ("\n".join(parts) + "\n</body></html>\n").encode()


def _head(report: Evidence) -> str:
    policy = html.escape(POLICY)
    asked = ", ".join(f"{shown(name)} {shown(value)}" for name, value in report.selection.items())
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>Audit report</title><style>{CSS}</style></head><body>\n"
        f"<h1>Audit report</h1><p>{asked}</p>"
    )


def _facts(report: Evidence, checked: ReportOutcome, count: int) -> str:
    export = report.export
    made_at, digest = shown(export["made_at"]), shown(export["sha256"])
    facts = [
        ("Log", shown(report.log)),
        ("Entries", f"{count:,}, of the {export['entries']:,} in the export"),
        ("Export", f"entries {export['from']} up to {export['to']}, made {made_at}"),
        ("SHA-256", f"{digest} <span class=small>of the export before its last line</span>"),
        ("Level", html.escape(LEVELS[checked.outcome.level])),
    ]  # fmt: skip
    if report.note is not None:
        proven = checkpoint.unverified(report.note)
        root = f"{proven.size:,} entries, root {proven.root.hex()}"
        facts.append(("Checkpoint", root))
        facts.append(("Signed by", shown(checked.outcome.covered_by)))
    facts += [("Witness", shown(each)) for each in checked.outcome.witnesses]
    cells = "".join(f"<tr><th>{name}</th><td>{text}</td></tr>" for name, text in facts)
    return f'<table class="facts">{cells}</table>'


def _tables(entries: list[rows.Entry]) -> list[str]:
    return [
        _table("What happened, in order", [_N + "No.", _T + "Time (UTC)", "What"],
               [rows.story(each) for each in entries]),
        _table("Who decided",
               ["Policy", "Id and version", "Allowed", "Denied", "The role's policies (SHA-256)"],
               rows.policies(entries)),
        _table("What was released, and what was done with it",
               [_N + "No.", "Event", "Action", "Outcome", "Details and digests"],
               rows.releases(entries), _NO_RELEASE),
        _table("What was changed meanwhile",
               [_N + "No.", _T + "Time (UTC)", _S + "What", _S + "By", "From what to what"],
               rows.changes(entries)),
    ]  # fmt: skip


def _table(
    title: str, head: list[str], body: list[list[str]], otherwise: str = "Nothing is recorded."
) -> str:
    if not body:
        return f"<h2>{title}</h2><p>{otherwise}</p>"
    cells = "".join(each if each.startswith("<th") else f"<th>{each}" for each in head)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>\n" for row in body)
    return f"<h2>{title}</h2><table><thead><tr>{cells}</tr></thead><tbody>\n{lines}</tbody></table>"


def _proven(checked: ReportOutcome, export: Outcome) -> str:
    count, unproven = checked.entries, checked.unproven
    yes = [
        "The export was verified first: every entry, their order, and each sidecar's own chain.",
        f"{count - unproven:,} of {count:,} entries are in the checkpoint's log: see report.json.",
        "Values behind commitments, such as users and queries, are those that were recorded.",
    ]
    no = [
        "That this page shows all that belongs here: only the export, searched again, shows that.",
        "That nothing is recorded after the export was made.",
        "That decisions follow from their facts and policies: verifying the export shows that.",
        "That this page was not edited: report.json is the evidence, this page explains it.",
    ]
    if unproven:
        no.insert(0, f"{unproven:,} entries are covered by no checkpoint of the export yet.")
    if not export.pinned:
        no.insert(0, "Who made the log: no key was pinned, so anyone could have made the export.")
    if checked.unopened:
        no.append(
            f"What {checked.unopened:,} entries committed to: it was erased, or the export was "
            "made without it."
        )
    return (
        f"<h2>What is proven</h2><ul>{_list(yes)}</ul><h2>What is not proven</h2>"
        f"<ul>{_list(no)}</ul>"
    )


def _commands(export: Outcome) -> str:
    claimed = "".join(f"<li><code>{shown(each)}</code></li>" for each in export.claimed_keys)
    return (
        "<h2>How to check it</h2><p>Get the log's key from its owner over another channel (paper, "
        "a call, a signed mail), and put it into log.pub. Install Sluice from a wheel's file, or "
        f"from a checkout: it is on no index. This page was made by version {__version__}, from a "
        f"wheel with the SHA-256 <code>{wheel_digest()}</code>; compare yours by sha256sum:</p>"
        f"<pre>{html.escape(install_command(), quote=False)}\n"
        "sluice verify report.json --key log.pub</pre>"
        "<p>With the export, also that nothing was left out, and that every decision follows from "
        "its facts and policies:</p><pre>sluice verify EXPORT --key log.pub --recompute\n"
        "sluice report EXPORT --key log.pub … -o AGAIN</pre>"
        f"<p>Keys that the export claims:</p><ul>{claimed or '<li>none</li>'}</ul>"
    )


def _list(texts: list[str]) -> str:
    return "".join(f"<li>{html.escape(each)}</li>" for each in texts)
