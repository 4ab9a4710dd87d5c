"""The tasks that run a topology: record choice, processing, commit points. Pure: everything outside
comes by port.
"""
