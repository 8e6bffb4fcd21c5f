"""The verification of logs that runs by itself."""
