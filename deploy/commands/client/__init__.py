"""The operator's commands: `sluice agents`, `keys`, `sessions`, `policies`, `events`, `export`,
`changes`, `fleet`, `revoke` and `freeze`, over the control API's HTTP API.

Each command has a file of the same name (`export` a folder). The other files serve all of them:

    run           parses the arguments, runs a command and reports errors
    client        a command's connection, output and common options
    output        tables and JSON
    policy_file   reads policies from a file, for `policies apply`
    follow        reads the audit trail as it grows, for `events --follow`

Requests go through `policies.ground.process.api_client`, as those of `sluice policy` and
`sluice verify --url` do.

Imports only the standard library (and PyYAML, to read a policy file), so that a command starts in
about a tenth of a second. Imports nothing of the services: knows only their API.
"""
