"""The operations of the control API. Each file holds one, or a few that belong together: the
request model and the function that serves it.

Each function is `async (app, caller, request) -> response`. The response is a type of
`control_api.responses` or a page of such values; a refusal is an error of `policies.ground.errors`.
Code that two use cases share is in a layer below: no use case imports another. They know nothing of
HTTP.
"""
