"""Turn a raw parallel corpus into a checked folder of train, valid and test files."""
