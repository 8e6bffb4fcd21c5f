"""The tests mirror the source. `stack` starts the real services, for stories and benchmarks."""
