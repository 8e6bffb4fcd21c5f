"""An HTTP port for processes with a handful of routes: limits on connections, errors, probes."""
