"""A real Slurm on one machine; not part of the suite."""
