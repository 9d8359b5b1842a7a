"""Translation metrics and their signatures: BLEU, chrF and TER by sacrebleu."""
