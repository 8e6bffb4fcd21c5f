"""What the log shows of the policy set: the changes, who has applied them, and the documents that
decisions cite."""
