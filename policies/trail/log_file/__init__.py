"""The export file of a log, `sluice-log/1`: its lines, and the reading of a whole file.

`lines` has a type for each kind of line and `coding` its bytes; `reader` reads a file strictly, in
pieces, and `writer` writes one.
`policies/trail/README.md` ("The export file") is the format's description. Knows no compression,
opens no file, and verifies no entry: `policies.trail.verify` does that.
"""
