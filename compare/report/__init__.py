"""Output of results: tables, plots and the HTML report."""
