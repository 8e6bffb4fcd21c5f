"""The doors that gateways ask over HTTP: `envoy_http` and `forward_auth`."""
