"""Text files: reading, writing, compression and formats of parallel text."""
