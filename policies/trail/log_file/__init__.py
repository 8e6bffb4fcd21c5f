"""The export file of a log, format `sluice-log/1`: its lines, and how a whole file is read and
written.

`lines` has a type for each kind of line and `coding` its bytes; `file` reads a file strictly, in
pieces, and writes one. `policies/trail/README.md` ("The export file") describes the format. Knows
no compression, opens no file, and verifies no entry: `policies.trail.verify` does that.
"""
