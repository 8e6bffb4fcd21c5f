"""The operator's commands, which call the control API over HTTP: `sluice agents`, `keys`,
`sessions`, `policies`, `events`, `export`, `changes`, `fleet`, `revoke`, `freeze`, `audit`,
`redact`, `tenants` and `log-key`.

Each command has a file of the same name. The other files serve several of them:

    client        parses the arguments, runs a command and reports errors
    output        prints tables and JSON
    download      receives an export in parts, for `export`

Requests go through `policies.ground.process.api_client`, as do those of `sluice policy` and `sluice
verify --url`.

Imports only the standard library (and PyYAML, to read a policy file), so that a command starts in
about a tenth of a second. Imports nothing of the services: it knows only their API.
"""
