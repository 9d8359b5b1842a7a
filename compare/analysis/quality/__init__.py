"""Translation quality by sentence length, word frequency, copying, errors and cost."""
