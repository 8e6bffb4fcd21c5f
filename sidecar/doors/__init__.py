"""Check doors: ports and paths where a gateway asks, before it forwards a request, whether the
request may pass.

A door turns a gateway's question into an HTTP request to a data source, which is read by the same
protocol tables as in the proxy, and turns the decision into the gateway's answer. Nothing is
decided, recorded or counted here: `sidecar.enforce` does that.
"""
