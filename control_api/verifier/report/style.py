"""The look of the page, on a screen and on paper, and the policy that lets nothing else into it."""

import hashlib

from policies.ground.canonical import b64

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
"""The Content-Security-Policy: even markup that got in could load, run and send nothing."""
