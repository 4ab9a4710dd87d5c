"""What the framework costs, measured."""
