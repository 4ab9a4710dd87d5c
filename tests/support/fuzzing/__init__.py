"""What others can write, drawn from seeds and fed to each entry; called by ``dev/fuzz`` and tests."""
