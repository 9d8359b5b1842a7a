"""Recurrent encoder-decoders with and without attention; imports no other room."""
