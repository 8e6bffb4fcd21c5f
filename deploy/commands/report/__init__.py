"""`sluice report`: reports on one session, agent, user or event from a verified export, as a page
to read (`report.html`) and as JSON with proofs that can be verified by itself (`report.json`,
format `sluice-report/1`).

`gathering` selects the entries and makes their inclusion proofs, `evidence` reads, writes and
verifies the JSON, and `page` and `rows` write the page. Needs the base installation only.
"""
