"""The OpenID AuthZEN Authorization API 1.0: evaluation, search and metadata.

Turns a question in the standard's form into a retrieval, and a decision into the standard's answer.
Nothing is decided, recorded or counted here: `sidecar.enforce` does that.
"""
