"""What looks at results: tables and plots."""
