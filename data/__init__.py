"""Parallel text, vocabularies and batches of tensors; imports no other package of the project."""

import logging

logging.getLogger(__name__).addHandler(logging.NullHandler())  # print nothing unless logging is configured
