"""Parallel text in, batches of tensors and masks out; imports no other package of this project."""

import logging

logging.getLogger(__name__).addHandler(logging.NullHandler())  # print nothing unless logging is configured
