"""Tools around the package: the embedded broker, the demo, benchmarks."""
