"""What the service finds, in words for people."""
