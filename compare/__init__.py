"""The comparison: trains, decodes, scores and times every model alike."""
