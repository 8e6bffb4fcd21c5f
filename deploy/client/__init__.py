"""The operator's commands: `sluice agents`, `keys`, `sessions`, `policies`, `events`, `fleet`,
`revoke` and `freeze`, over the control API's HTTP API.

Each of the eight commands has one file of its name. The other files serve them all, which is why
this folder holds more than a dozen:

    run           parses the arguments, runs a command and reports errors
    client        what a command works with: a connection, an output and the common options
    connection    requests over HTTP, and pages of lists
    credentials   finds the key and the TLS files
    output        tables and JSON
    policy_file   reads policies from a file, for `policies apply`
    follow        reads the audit trail as it grows, for `events --follow`

Imports only the standard library (and PyYAML, to read a policy file), so that a command starts in
about a tenth of a second. Imports nothing of the services: it knows only their API.
"""
