"""Several processes on one port: a supervisor that starts and watches, and workers that serve."""
