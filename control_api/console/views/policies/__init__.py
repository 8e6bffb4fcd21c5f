"""The console's pages of the area "Policies"."""
