"""Download named corpora: mirrors, resume, published hashes."""
