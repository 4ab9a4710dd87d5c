"""The DSL: streams, grouped streams and tables, compiled to a topology."""
