"""The machine: device, precision, CPU settings, memory, energy, timing, signals, progress, version."""
