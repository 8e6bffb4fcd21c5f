"""Steps that several use cases on policies share: planning a reload, applying it, publishing a
change."""
