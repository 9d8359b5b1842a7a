"""One page that shows an experiment: a single HTML file that needs neither network nor server."""
