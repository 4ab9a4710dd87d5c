"""What the small commands of dev/ run."""
