"""Plug-ins, saved models, export, trackers and other programs: each on a library that is installed on demand."""
