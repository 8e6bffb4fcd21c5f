"""What the control API does, one operation a file: what is asked, and what is done with it.

Each is `async (service, caller, asked) -> answer`. The answer is a shape of
`control_api.responses.audit`, a
page of them, or an error of `policies.ground.errors`. Knows nothing of HTTP.
"""
