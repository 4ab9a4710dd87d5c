"""Files that type checkers read and nothing runs: lines marked ``# error`` are mistakes."""
