"""`sluice report`: reports on one session, agent, user or event from a verified export, as a page
to read (`report.html`) and as JSON that proves itself (`report.json`, `sluice-report/1`).

`selection` finds the entries, `proving` their inclusion proofs, `evidence` is the JSON's format,
`check` verifies it alone, and `page` writes the page. Needs the base installation only.
"""
