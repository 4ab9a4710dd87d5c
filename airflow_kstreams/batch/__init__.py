"""KIP-95, incremental batch: what a run is, where it stops, when it is finished."""
