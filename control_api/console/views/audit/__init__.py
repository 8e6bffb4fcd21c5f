"""The console's pages of the area "Audit"."""
