"""Plug-ins, saved models, export, trackers, demo page: each on a library that is installed on demand."""
