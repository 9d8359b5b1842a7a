"""Plug-ins, saved models, export and other tools: each on a library that is installed only on demand."""
