"""The control API's metrics, and the merging of several workers' metrics into one answer."""
