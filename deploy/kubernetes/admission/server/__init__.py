"""The webhook's ports: reviews over HTTPS, health and metrics over plain HTTP."""
