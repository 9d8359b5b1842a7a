"""What studies results and mechanisms."""
