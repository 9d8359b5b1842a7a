#!/bin/sh
# sh results/multi30k-pilots/pilots.sh FOLDER, the folder of the corpora, from the root of the repository.
set -e
CORPORA=$1
pilot() {
    attnbench run configs/multi30k-en-de.toml --set data.root="$CORPORA/multi30k" "$@"
}
# The pilots of multi30k-en-de, most of them Transformers, on Multi30k, English to German, seed 1, which decided the shape
# of the Transformer and the settings that all models of multi30k-en-de share. Each run differs from `base` in what
# its comment says. A pilot whose validation BLEU stayed behind at equal updates or equal time was stopped; its curve is
# in curves.csv to where it came.
# Length penalties went up to 2 then, which changes no curve: these are of greedy search.
# `simcut-from-base` in curves.csv is SimCut from the weights that `base` had after 9,840 updates, with a learning rate
# that falls from 1.2e-3 over 2,460 updates; stopped at 1,000.

# d_model 128, 4 + 4 layers; ended by patience at 16,728
pilot \
    --set vocabulary.size=6000 \
    --set models.transformer.schedule=inverse-sqrt \
    --set models.transformer.learning_rate=3e-3 \
    --set models.transformer.warmup_updates=1500 \
    --set train.batch_tokens=2048 \
    --set train.max_updates=29520 \
    --set train.patience=6 \
    --set train.valid_every=492 \
    --set train.checkpoint_every=246 \
    --set train.average_every=246 \
    --only transformer --seeds 1 --out runs/pilots/base

# learning rate falls linearly to 0
pilot \
    --set vocabulary.size=6000 \
    --set models.transformer.schedule=linear \
    --set models.transformer.learning_rate=3e-3 \
    --set models.transformer.warmup_updates=1500 \
    --set train.batch_tokens=2048 \
    --set train.max_updates=9840 \
    --set train.patience=0 \
    --set train.valid_every=492 \
    --set train.checkpoint_every=246 \
    --set train.average_every=246 \
    --only transformer --seeds 1 --out runs/pilots/linear

# and half as large batches; stopped at 5,100
pilot \
    --set vocabulary.size=6000 \
    --set models.transformer.schedule=linear \
    --set models.transformer.learning_rate=2e-3 \
    --set models.transformer.warmup_updates=1500 \
    --set train.batch_tokens=1024 \
    --set train.max_updates=19680 \
    --set train.patience=0 \
    --set train.valid_every=984 \
    --set train.checkpoint_every=492 \
    --set train.average_every=492 \
    --only transformer --seeds 1 --out runs/pilots/linear-1024

# d_model 256, 3 + 3 layers
pilot \
    --set vocabulary.size=6000 \
    --set models.transformer.schedule=linear \
    --set models.transformer.learning_rate=1.5e-3 \
    --set models.transformer.warmup_updates=800 \
    --set train.batch_tokens=2048 \
    --set train.max_updates=4920 \
    --set train.patience=0 \
    --set train.valid_every=492 \
    --set train.checkpoint_every=246 \
    --set train.average_every=246 \
    --set models.transformer.d_model=256 \
    --set models.transformer.ffn_size=512 \
    --set models.transformer.encoder_layers=3 \
    --set models.transformer.decoder_layers=3 \
    --only transformer --seeds 1 --out runs/pilots/wide

# and half as large batches
pilot \
    --set vocabulary.size=6000 \
    --set models.transformer.schedule=linear \
    --set models.transformer.learning_rate=1e-3 \
    --set models.transformer.warmup_updates=1000 \
    --set train.batch_tokens=1024 \
    --set train.max_updates=9840 \
    --set train.patience=0 \
    --set train.valid_every=984 \
    --set train.checkpoint_every=492 \
    --set train.average_every=492 \
    --set models.transformer.d_model=256 \
    --set models.transformer.ffn_size=512 \
    --set models.transformer.encoder_layers=3 \
    --set models.transformer.decoder_layers=3 \
    --only transformer --seeds 1 --out runs/pilots/wide-1024

# normalised after each sum; stopped at 9,400
pilot \
    --set vocabulary.size=6000 \
    --set models.transformer.schedule=inverse-sqrt \
    --set models.transformer.learning_rate=3e-3 \
    --set models.transformer.warmup_updates=2000 \
    --set train.batch_tokens=2048 \
    --set train.max_updates=9840 \
    --set train.patience=0 \
    --set train.valid_every=492 \
    --set train.checkpoint_every=246 \
    --set train.average_every=246 \
    --set models.transformer.norm=post \
    --only transformer --seeds 1 --out runs/pilots/post-norm

# stopped at 2,650
pilot \
    --set models.transformer.schedule=inverse-sqrt \
    --set models.transformer.learning_rate=3e-3 \
    --set models.transformer.warmup_updates=1500 \
    --set train.batch_tokens=2048 \
    --set train.max_updates=9840 \
    --set train.patience=0 \
    --set train.valid_every=492 \
    --set train.checkpoint_every=246 \
    --set train.average_every=246 \
    --set vocabulary.size=3000 \
    --only transformer --seeds 1 --out runs/pilots/vocabulary-3000

# stopped at 3,050
pilot \
    --set models.transformer.schedule=inverse-sqrt \
    --set models.transformer.learning_rate=3e-3 \
    --set models.transformer.warmup_updates=1500 \
    --set train.batch_tokens=2048 \
    --set train.max_updates=9840 \
    --set train.patience=0 \
    --set train.valid_every=492 \
    --set train.checkpoint_every=246 \
    --set train.average_every=246 \
    --set vocabulary.size=10000 \
    --only transformer --seeds 1 --out runs/pilots/vocabulary-10000

# stopped at 4,950
pilot \
    --set vocabulary.size=6000 \
    --set models.transformer.schedule=inverse-sqrt \
    --set models.transformer.learning_rate=3e-3 \
    --set models.transformer.warmup_updates=1500 \
    --set train.batch_tokens=2048 \
    --set train.max_updates=9840 \
    --set train.patience=6 \
    --set train.valid_every=492 \
    --set train.checkpoint_every=246 \
    --set train.average_every=246 \
    --set regularization.subword_sampling=0.2 \
    --only transformer --seeds 1 --out runs/pilots/subword-sampling

# stopped at 3,936
pilot \
    --set vocabulary.size=6000 \
    --set models.transformer.schedule=inverse-sqrt \
    --set models.transformer.learning_rate=3e-3 \
    --set models.transformer.warmup_updates=1500 \
    --set train.batch_tokens=2048 \
    --set train.max_updates=9840 \
    --set train.patience=6 \
    --set train.valid_every=492 \
    --set train.checkpoint_every=246 \
    --set train.average_every=246 \
    --set regularization.consistency=simcut \
    --only transformer --seeds 1 --out runs/pilots/simcut

# d_model 256, 3 + 3 layers, until patience ended it, at 12,300: its loss rises from 8,364 on, and in the same time, with
# the moving average, it is no better than `base` (39.6 and 40.3, both with a loss of 1.51)
pilot \
    --set vocabulary.size=6000 \
    --set models.transformer.schedule=inverse-sqrt \
    --set models.transformer.learning_rate=2.5e-3 \
    --set models.transformer.warmup_updates=1000 \
    --set models.transformer.d_model=256 \
    --set models.transformer.ffn_size=512 \
    --set models.transformer.encoder_layers=3 \
    --set models.transformer.decoder_layers=3 \
    --only transformer --seeds 1 --out runs/pilots/wide-long

# and more dropout; stopped at 7,200
pilot \
    --set vocabulary.size=6000 \
    --set models.transformer.schedule=inverse-sqrt \
    --set models.transformer.learning_rate=2.5e-3 \
    --set models.transformer.warmup_updates=1000 \
    --set models.transformer.d_model=256 \
    --set models.transformer.ffn_size=512 \
    --set models.transformer.encoder_layers=3 \
    --set models.transformer.decoder_layers=3 \
    --set models.transformer.dropout=0.4 \
    --only transformer --seeds 1 --out runs/pilots/wide-dropout-0.4

# luong-general of multi30k-en-de, seed 1, with more dropout; stopped at 5,700
pilot \
    --set vocabulary.size=6000 \
    --set models.luong-general.learning_rate=5.47e-3 \
    --set models.luong-general.warmup_updates=682 \
    --set models.luong-general.dropout=0.4 \
    --only luong-general --seeds 1 --out runs/pilots/luong-dropout-0.4

# the Transformer, Luong and Bahdanau of multi30k-en-de with 6,000 subwords, until patience ended them. With 10,000
# (results/multi30k-en-de) validation BLEU with the chosen length penalty is 41.4 instead of 40.5 for the Transformer, 41.0
# instead of 40.6 for Luong, and 39.2 instead of 39.6 for Bahdanau; an update takes 5 to 11% longer
pilot \
    --set vocabulary.size=6000 \
    --only transformer,luong-general,bahdanau --seeds 1 --out runs/pilots/vocabulary-6000-long

# luong-general of multi30k-en-de with the settings of the next best trial of its search (results/multi30k-tuning, trial 4),
# with the seed that stays far behind with those of the best one: BLEU 30.1 and 28.0 after 3,444 updates, where
# seeds 1 and 2 have 37 and 38. So the rate alone does not explain it in this time; stopped at 3,750
pilot \
    --set models.luong-general.learning_rate=2.37e-3 \
    --set models.luong-general.warmup_updates=784 \
    --only luong-general --seeds 3 --out runs/pilots/luong-low-rate
