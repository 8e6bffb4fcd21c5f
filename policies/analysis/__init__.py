"""What can be said of policies without a request: `lint`."""
