"""The Processor API: user code that sees each record, keeps state and forwards what it likes."""
