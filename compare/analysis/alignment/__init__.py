"""Attention as word alignment: gold links, links read off weights, and how far the two agree.

``pharaoh`` reads links that people made, ``gold`` joins them to the words they are of; ``pieces`` finds the
words that a vocabulary's pieces write, ``attended`` the weights between words; ``links`` turns weights into
links, ``aer`` counts the right ones, ``entropy`` says how widely weights are spread, ``measured`` sums both
over a text. ``experiment_alignment`` and ``experiment_entropy`` do this for a finished experiment.
"""
