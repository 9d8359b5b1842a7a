"""Translation metrics: BLEU, chrF and TER by sacreBLEU, with their signatures."""
