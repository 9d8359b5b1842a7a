"""Run folders, result records, and the columns that every table shows."""
