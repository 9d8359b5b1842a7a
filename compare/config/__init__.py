"""Experiments as written: TOML files, overrides, checked sections."""
