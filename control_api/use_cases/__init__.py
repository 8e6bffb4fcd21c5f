"""The operations of the control API, one a file: the request model and the function that serves it.

Each is `async (app, caller, request) -> response`. The response is a type of
`control_api.responses`, a page of them, or an error of `policies.ground.errors`. What two of them
share is in a layer below: no use case imports another. They know nothing of HTTP.
"""
