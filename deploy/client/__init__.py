"""The operator's commands: `sluice agents`, `keys`, `sessions`, `policies`, `events`, `fleet`,
`revoke` and `freeze`, over the API of a control API.

One file for each command; `run` parses and reports, `connection` speaks HTTP, `output` prints.
Imports the standard library alone (and PyYAML to read a policy file), so that a command starts in
about a tenth of a second, and nothing of the services: what it knows of them is their API.
"""
