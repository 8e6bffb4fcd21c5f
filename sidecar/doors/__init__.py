"""Check doors: a gateway asks here, before it forwards a request, whether the request may pass.

A door turns a gateway's question into an HTTP request of a data source, which the same protocol
tables read as in the proxy, and a decision into the gateway's answer. Nothing is decided, recorded
or counted here: `sidecar.enforce` does that.
"""
