"""Changes of policies: what a change would do, and the folders that policies are loaded from."""
