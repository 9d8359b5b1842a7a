# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Attention from Bahdanau to Transformer
#
# This tutorial builds the ideas of neural machine translation in the order in which they were published: an
# encoder-decoder without attention, the attention of Bahdanau, the variants of Luong, and the Transformer.
# Each step is a few lines with the models of attnbench, trained in seconds on one core.
#
# `make tour` runs all of it in a minute or two, prints the results and writes the pictures into
# `runs/tour`. On the documentation site (`make docs`) they stand below the code that made them.
# `docs/tutorial.ipynb` has the same cells for Jupyter and hosted notebooks.
#
# You should know what an LSTM, a softmax and a training loop are.

# %%
import random
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import nn

from compare import SpecialIds, generate
from compare.models.styles import styles_of
from seq2seq import AdditiveScore, AttentionConfig, Queries, Seq2Seq, Seq2SeqConfig
from transformer import Transformer, TransformerConfig, plain_attention
from transformer.positions import sinusoids

torch.set_num_threads(1)

# %% [markdown]
# ## 1. A translation task
#
# English and German order words differently: *she has seen the old dog* is *sie hat den alten Hund
# gesehen*, with the verb at the end, and article and adjective depend on the noun. The sentences here
# consist of one to three such clauses. The task is small, but it has what makes translation hard for a
# network: long-distance reordering, agreement, and content that must not get lost.

# %%
SUBJECTS = {"she": "sie", "he": "er", "Anna": "Anna", "Thomas": "Thomas"}
VERBS = {
    "seen": "gesehen",
    "heard": "gehört",
    "found": "gefunden",
    "bought": "gekauft",
    "drawn": "gezeichnet",
}
ADJECTIVES = {"old": "alte", "small": "kleine", "new": "neue", "red": "rote", "beautiful": "schöne"}
NOUNS = {"dog": "den Hund", "tree": "den Baum", "cat": "die Katze", "town": "die Stadt", "house": "das Haus"}


def draw_clause(rng: random.Random) -> tuple[list[str], list[str]]:
    """Draw an English clause and its German translation, as lists of words."""
    subject, verb, adjective, noun = (
        rng.choice(list(words)) for words in (SUBJECTS, VERBS, ADJECTIVES, NOUNS)
    )
    article, german_noun = NOUNS[noun].split()
    german_adjective = ADJECTIVES[adjective] + ("n" if article == "den" else "")
    return (
        [subject, "has", verb, "the", adjective, noun],
        [SUBJECTS[subject], "hat", article, german_adjective, german_noun, VERBS[verb]],
    )


def draw_sentence(rng: random.Random, clauses: int) -> tuple[list[str], list[str]]:
    """Draw a sentence of some clauses, joined by "and"."""
    src, tgt = draw_clause(rng)
    for _ in range(clauses - 1):
        more_src, more_tgt = draw_clause(rng)
        src, tgt = [*src, "and", *more_src], [*tgt, "und", *more_tgt]
    return src, tgt


print("\n1. A translation task: sentences of one and of two clauses, with their translations")
rng = random.Random(0)
for clauses in (1, 2):
    src, tgt = draw_sentence(rng, clauses)
    print(" ".join(src), "->", " ".join(tgt))

# %% [markdown]
# Words become ids, sentences become a matrix of ids padded on the right, and a mask says where the real
# tokens are. The decoder reads the translation shifted by one: it sees `<bos> sie hat` and is to predict
# `sie hat den`. This is *teacher forcing*: in training, the decoder reads the reference, not its own
# output.

# %%
PAD, BOS, EOS = 0, 1, 2
words = sorted({word for _ in range(1000) for side in draw_sentence(rng, 2) for word in side})
WORDS = ["<pad>", "<bos>", "<eos>", *words]
IDS = {word: number for number, word in enumerate(WORDS)}


def encode(sentences: list[list[str]], first: list[int]) -> torch.Tensor:
    """Turn sentences into ids (sentences, positions), padded on the right."""
    rows = [torch.tensor([*first, *(IDS[word] for word in sentence), EOS]) for sentence in sentences]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


def draw_batch(rng: random.Random, clauses: list[int], size: int = 32) -> tuple[torch.Tensor, ...]:
    """Draw source ids, their mask, decoder input and expected output."""
    pairs = [draw_sentence(rng, rng.choice(clauses)) for _ in range(size)]
    src = encode([src for src, _ in pairs], [])
    tgt = encode([tgt for _, tgt in pairs], [BOS])
    return src, src != PAD, tgt[:, :-1], tgt[:, 1:]


def train(model: nn.Module, updates: int = 300, learning_rate: float = 0.01, warmup: int = 10) -> list[float]:
    """Train by Adam with warm-up and linear decay; return the loss of every update."""
    rng, losses = random.Random(1), []
    optimizer = torch.optim.Adam(model.parameters())
    for update in range(1, updates + 1):
        optimizer.param_groups[0]["lr"] = learning_rate * min(
            update / warmup, 2 * (1 - (update - 1) / updates), 1
        )
        src, src_mask, tgt_in, tgt_out = draw_batch(rng, [1, 2, 3])
        logits = model(src, src_mask, tgt_in)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tgt_out.flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    return losses


def make(config: Seq2SeqConfig | TransformerConfig, seed: int = 1) -> nn.Module:
    """Build a model with fresh weights."""
    torch.manual_seed(seed)
    build = Seq2Seq if isinstance(config, Seq2SeqConfig) else Transformer
    return build(config, len(WORDS), len(WORDS))


# %% [markdown]
# ## 2. An encoder-decoder without attention
#
# Sutskever et al. (2014) translate with two LSTMs. The encoder reads the source; its last state, *one
# vector*, is the start of the decoder, which writes the translation word by word:
#
#     h_j = LSTM(h_(j-1), x_j)               encoder, source word j
#     s_0 = tanh(W h_last + b)               everything the decoder will ever know about the source
#     s_t = LSTM(s_(t-1), y_(t-1))           decoder
#     p(y_t) = softmax(V s_t)
#
# In attnbench that is `attention=None`, the preset `lstm`.

# %%
SIZES = {"embedding_size": 64, "hidden_size": 64, "dropout": 0.0}
models = {"lstm": make(Seq2SeqConfig(attention=None, **SIZES))}
losses = {"lstm": train(models["lstm"])}
print("\n2. An encoder-decoder without attention: the source must fit into one vector")
print("loss of the last 20 updates, nats per token:", round(sum(losses["lstm"][-20:]) / 20, 3))

# %% [markdown]
# Does it translate? `generate` is the search of attnbench: it only needs the methods `encode`, `init_state`
# and `step`, which every model has. `beam_size=1` is greedy search.


# %%
def translate(model: nn.Module, sentences: list[list[str]]) -> list[list[str]]:
    """Translate sentences of words by greedy search."""
    src = encode(sentences, [])
    limits = torch.full((len(sentences),), src.size(1) + 2)
    special = SpecialIds(pad=PAD, bos=BOS, eos=EOS)
    beams = generate(model, src, src != PAD, limits=limits, special=special, beam_size=1)
    return [[WORDS[token] for token in best[0].tokens if token != EOS] for best in beams]


example = ["Anna", "has", "found", "the", "old", "dog", "and", "he", "has", "bought", "the", "red", "house"]
print("source:     ", " ".join(example))
print("translation:", " ".join(translate(models["lstm"], [example])[0]))

# %% [markdown]
# The form is right, but the content is not. The model knows that *hat* follows a subject and that a
# participle closes the clause. Which noun and which verb it was got lost on the way through one vector.
# This is the *bottleneck* that attention removes. (A larger LSTM, trained longer, does learn the task. But
# it needs a vector that holds the whole sentence.)
#
# ## 3. Bahdanau: look back at every step
#
# Bahdanau et al. (2015) keep all encoder states h_1 ... h_S. At every step, the decoder compares its state
# with each of them, and reads their weighted average, the *context*:
#
#     e_tj = v . tanh(W s_(t-1) + U h_j)     score: how well does source word j fit what comes next?
#     a_tj = softmax over j of e_tj          weights: positive, sum to 1
#     c_t  = sum over j of a_tj h_j          context
#     s_t  = LSTM(s_(t-1), [y_(t-1); c_t])
#
# The score is a small network with one hidden layer, hence *additive attention*. By hand it is three lines;
# they agree with the `AdditiveScore` of attnbench:

# %%
torch.manual_seed(0)
scorer = AdditiveScore(8, 6, AttentionConfig(score="additive", attention_size=5))
s, h = torch.randn(8), torch.randn(7, 6)  # one decoder state, seven encoder states

W, U, v = scorer.query.weight, scorer.key.weight, scorer.energy.weight[0]
scores = torch.stack([v @ torch.tanh(W @ s + U @ h_j) for h_j in h])
weights = scores.softmax(dim=0)
context = sum(a_j * h_j for a_j, h_j in zip(weights, h, strict=True))

queries = Queries(s.view(1, 1, 8), torch.zeros(1, 1, dtype=torch.long))
theirs = scorer.score(queries, scorer.project_keys(h[None])).flatten()
torch.testing.assert_close(scores, theirs)
print("\n3. Bahdanau's attention: the weights of seven encoder states by hand")
print("weights:", [round(a_j.item(), 3) for a_j in weights], "sum:", round(weights.sum().item(), 3))

# %% [markdown]
# The same network as before, now with attention:

# %%
models["bahdanau"] = make(Seq2SeqConfig(attention=AttentionConfig(score="additive"), **SIZES))
losses["bahdanau"] = train(models["bahdanau"])
print("the same network, now with attention")
print("loss of the last 20 updates, nats per token:", round(sum(losses["bahdanau"][-20:]) / 20, 3))
print("translation:", " ".join(translate(models["bahdanau"], [example])[0]))

# %% [markdown]
# The weights can be drawn: a row per target word, a column per source word, dark where the model looks. The
# model was never told which word translates which; it had to find out in order to predict the next word.


# %%
def draw_attention(model: nn.Module, sentence: list[str], title: str) -> None:
    """Translate a sentence and draw the attention to the source, one picture per layer and head."""
    translation = translate(model, [sentence])[0]
    src, tgt_in = encode([sentence], []), encode([translation], [BOS])[:, :-1]
    with torch.no_grad():
        attention = model.attention(src, src != PAD, tgt_in)
    heads = [head for name, weights in attention.items() if name.startswith("cross") for head in weights[0]]
    figure, axes = plt.subplots(1, len(heads), squeeze=False, sharey=True, figsize=(4.6 * len(heads), 4.4))
    for number, (head, ax) in enumerate(zip(heads, axes[0], strict=True), 1):
        ax.imshow(head.numpy(), cmap="Blues", vmin=0, vmax=1)
        ax.set_xticks(range(len(sentence) + 1), [*sentence, "<eos>"], rotation=90)
        ax.set_yticks(range(len(translation) + 1), [*translation, "<eos>"])
        ax.set_title(title if len(heads) == 1 else f"{title}, head {number}")
        ax.set_xlabel("source")
    axes[0][0].set_ylabel("translation")
    figure.tight_layout()


draw_attention(models["bahdanau"], example, "Attention of Bahdanau's model")

# %% [markdown]
# The weights follow the clauses and jump to the verb at the end, but they need not lie on the very word
# that is translated: an encoder state knows its neighbours, so the model can read *old dog* in one place.
# Weights show where a model reads. That is not always why it writes a word (Jain and Wallace 2019).
#
# ## 4. Luong: simpler scores, another place
#
# Luong et al. (2015) attend *after* the step, with the new state s_t as the query, and compare scores that
# are cheaper than a network:
#
#     dot       e_tj = s_t . h_j
#     general   e_tj = s_t . (W h_j)
#     concat    e_tj = v . tanh(W [s_t; h_j])
#
# The context is then combined with the state, and this *attentional vector* predicts the word. With *input
# feeding* it is also an input of the next step, so that the model knows where it has already looked:
#
#     a_t = tanh(W_c [c_t; s_t])
#
# In attnbench, each of these choices is one setting, and any combination of them is a model:

# %%
luong = AttentionConfig(score="general", placement="after", input_feeding=True)
models["luong-general"] = make(Seq2SeqConfig(attention=luong, **SIZES))
losses["luong-general"] = train(models["luong-general"], updates=600, learning_rate=0.007)
print("\n4. Luong's attention: a simpler score, after the step; it learns more slowly: 600 updates")
print("loss of the last 20 updates, nats per token:", round(sum(losses["luong-general"][-20:]) / 20, 3))
print("translation:", " ".join(translate(models["luong-general"], [example])[0]))

# %% [markdown]
# Luong's *local* attention looks at a window around a position only: around the decoder's own position
# (`local-m`) or a predicted one (`local-p`). It is `scope="local-p"` here. `attnbench models` lists all
# presets, and `attnbench models luong-local-p` prints one with its formulas, sizes and every departure from
# the paper.
#
# ### Soft and hard
#
# The softmax gives every word some weight: *soft* attention. *Hard* attention reads one word (Xu et al.
# 2015). It is the limit of sharper and sharper scores, but the choice of the largest is a step, which has
# no gradient: hard attention needs a detour to learn where to look, such as REINFORCE (presets `hard-
# reinforce`, `hard-st`).

# %%
scores = torch.tensor([1.0, 2.0, 0.5, 1.8, 0.2], requires_grad=True)
values = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
print("soft attention has a gradient; the sharper it is, the smaller; hard attention has none")
figure, axes = plt.subplots(1, 3, sharey=True, figsize=(8, 2.6))
kinds = {
    "soft": scores.softmax(0),
    "scores times 5": (5 * scores).softmax(0),
    "hard": nn.functional.one_hot(scores.argmax(), 5).float(),
}
for (name, kind), ax in zip(kinds.items(), axes, strict=True):
    context = (kind * values).sum()
    (gradient,) = torch.autograd.grad(context, scores) if context.requires_grad else (None,)
    shown = "none" if gradient is None else [round(part, 3) for part in gradient.tolist()]
    print(f"{name:14} gradient of the scores: {shown}")
    ax.bar(range(1, 6), kind.detach())
    ax.set_title(f"{name}{'' if context.requires_grad else ': no gradient'}")
    ax.set_xlabel("source word")
axes[0].set_ylabel("weight")
figure.tight_layout()

# %% [markdown]
# ### Static and dynamic
#
# These weights are *dynamic*: computed from the words. *Static* weights are parameters, one per pair of
# positions (Tay et al. 2021): whatever the sentence says, position t reads the same positions. In this task
# every clause has the same six positions, so the dynamic weights of two sentences are alike, too. But only
# dynamic weights can follow other lengths and orders. The static weights below are random, Bahdanau's are
# learned.

# %%
other = ["Thomas", "has", "seen", "the", "new", "tree", "and", "she", "has", "heard", "the", "old", "cat"]
sizes = {"max_source": 20, "max_target": 20}
static = make(Seq2SeqConfig(attention=AttentionConfig(score="static", placement="after", **sizes), **SIZES))
nn.init.normal_(next(value for name, value in static.named_parameters() if name.endswith("table")), std=3.0)
print("static weights are equal in all sentences, dynamic ones are not")
figure, axes = plt.subplots(2, 2, sharex=True, sharey=True, figsize=(7, 6))
for (name, model), row in zip({"static": static, "bahdanau": models["bahdanau"]}.items(), axes, strict=True):
    maps = []
    for sentence, ax in zip((["she", *example[1:]], other), row, strict=True):
        src = encode([sentence], [])
        tgt_in = encode(translate(models["bahdanau"], [sentence]), [BOS])[:, :-1]  # one translation for both
        with torch.no_grad():
            maps.append(model.attention(src, src != PAD, tgt_in)["cross"][0, 0])
        ax.imshow(maps[-1], cmap="Blues", vmin=0, vmax=1)
        ax.set_title(f"{name}: {' '.join(sentence[:3])} ...")
    rows = min(map(len, maps))
    difference = (maps[0][:rows, :14] - maps[1][:rows, :14]).abs().max().item()
    print(f"{name:9} largest difference between the weights of two sentences: {difference:.2f}")
figure.tight_layout()

# %% [markdown]
# ## 5. Why the product is scaled
#
# The dot product has no parameters and is one matrix product for all positions at once, which is what makes
# the Transformer fast. But for vectors of size d with independent components of variance 1, it has variance
# d. Large scores push the softmax to a single position, where its gradient vanishes. Vaswani et al. (2017)
# therefore divide by sqrt(d):

# %%
torch.manual_seed(0)
sizes = [4, 16, 64, 256, 1024]
largest = {"dot": [], "dot / sqrt(d)": []}
for size in sizes:
    q, keys = torch.randn(200, 1, size), torch.randn(200, 20, size)
    products = (q * keys).sum(-1)
    largest["dot"].append(products.softmax(-1).max(-1).values.mean().item())
    largest["dot / sqrt(d)"].append((products / size**0.5).softmax(-1).max(-1).values.mean().item())
print("\n5. Why the product is scaled: the largest of 20 weights grows with the size of the vectors")
for name, values in largest.items():
    print(f"{name:14}", ", ".join(f"d {d}: {value:.2f}" for d, value in zip(sizes, values, strict=True)))
figure, ax = plt.subplots(figsize=(5, 3.2))
for name, values in largest.items():
    ax.plot(sizes, values, marker="o", label=name)
ax.set_xscale("log", base=2)
ax.set_ylim(0, 1)
ax.set_title("Largest of 20 attention weights, random vectors")
ax.set_xlabel("size d of the vectors")
ax.set_ylabel("mean of the largest weight")
ax.legend()
figure.tight_layout()

# %% [markdown]
# ## 6. Self-attention needs positions
#
# The Transformer drops the recurrence. Words exchange information by attention among themselves,
# *self-attention*. Every word is a query, a key and a value:
#
#     Attention(Q, K, V) = softmax(Q K^T / sqrt(d)) V
#
# This is computed for all positions in parallel; `plain_attention` is this formula. Without recurrence,
# nothing in it knows the order of the words: if the words are permuted, so are the outputs, and nothing
# else changes.

# %%
x = torch.randn(1, 1, 6, 16)  # one sentence, one head, six words of size 16
order = torch.tensor([3, 0, 5, 1, 4, 2])
output, _ = plain_attention(x, x, x, mask=None, causal=False, dropout=0.0)
permuted, _ = plain_attention(
    x[:, :, order], x[:, :, order], x[:, :, order], mask=None, causal=False, dropout=0.0
)
torch.testing.assert_close(permuted, output[:, :, order])
print("\n6. Self-attention without positions cannot see the order of words:")
print("outputs of permuted words = permuted outputs")

# %% [markdown]
# So the position is added to each embedding, as sines and cosines of many wavelengths:

# %%
figure, ax = plt.subplots(figsize=(6, 3))
ax.imshow(sinusoids(torch.arange(40), 64).numpy(), cmap="RdBu", aspect="auto")
ax.set_title("Sinusoidal positions (Vaswani et al. 2017)")
ax.set_xlabel("component")
ax.set_ylabel("position")
figure.tight_layout()

# %% [markdown]
# ### Masks
#
# Two kinds of position get no weight at all: their scores are set to minus infinity before the softmax. The
# first is padding, which only makes sentences of a batch equally long. The second, in the decoder, are the
# words that come later, since it has to predict them.

# %%
torch.manual_seed(0)
scores = torch.randn(6, 6)
later = torch.ones(6, 6).triu(1).bool()
padding = torch.arange(6).expand(6, 6) >= 4  # the sentence has four words
figure, axes = plt.subplots(1, 3, sharey=True, figsize=(9, 3.2))
masks = {"no mask": torch.zeros(6, 6).bool(), "padding masked": padding, "later words masked": later}
for (name, hidden), ax in zip(masks.items(), axes, strict=True):
    ax.imshow(scores.masked_fill(hidden, -torch.inf).softmax(-1), cmap="Blues", vmin=0, vmax=1)
    ax.set_title(name)
    ax.set_xlabel("key")
axes[0].set_ylabel("query")
figure.tight_layout()

# %% [markdown]
# ## 7. The Transformer
#
# A layer of the Transformer has several *heads*, attentions with projections of their own that can look at
# different positions. A feed-forward network per position follows, and residual connections and layer
# normalisation are around both. The decoder has a mask in its self-attention, so position t sees only the
# words that are already written. It attends to the encoder as before (*cross-attention*). In training, all
# positions are computed at once, where a recurrent decoder needs a loop.

# %%
config = TransformerConfig(
    d_model=64, ffn_size=128, num_heads=2, encoder_layers=1, decoder_layers=1, dropout=0.0
)
models["transformer"] = make(config)
losses["transformer"] = train(models["transformer"], learning_rate=0.004, warmup=40)
print("\n7. The Transformer: attention in place of recurrence")
print("loss of the last 20 updates, nats per token:", round(sum(losses["transformer"][-20:]) / 20, 3))
print("translation:", " ".join(translate(models["transformer"], [example])[0]))

src, target = encode([example], []), encode([example], [BOS])
changed = target.clone()
changed[0, 5:] = IDS["dog"]  # other words from position 5 on
with torch.no_grad():
    logits, others = (models["transformer"](src, src != PAD, ids) for ids in (target, changed))
torch.testing.assert_close(others[:, :5], logits[:, :5])
print("predictions before a changed word: unchanged")

# %%
draw_attention(models["transformer"], example, "Cross-attention of the Transformer")

# %% [markdown]
# ## 8. Side by side
#
# How many sentences does each model translate without a single mistake? Sentences of one to three clauses
# were in training (the test draws other sentences). Four and five clauses are longer than anything in
# training.

# %%
CAVEAT = "One seed of tiny models on a toy task, with few updates: this does not show which model is better."
print("\n8. Side by side: exact translations, in %, by the number of clauses; 4 and 5 were not in training")
exact: dict[str, list[float]] = {}
for name, model in models.items():
    exact[name] = []
    for clauses in range(1, 6):
        rng = random.Random(100 + clauses)
        pairs = [draw_sentence(rng, clauses) for _ in range(50)]
        translations = translate(model, [src for src, _ in pairs])
        right = sum(words == tgt for words, (_, tgt) in zip(translations, pairs, strict=True))
        exact[name].append(100 * right / len(pairs))
    size = sum(weight.numel() for weight in model.parameters())
    shown = ", ".join(f"{clauses}: {share:.0f}%" for clauses, share in enumerate(exact[name], start=1))
    print(f"{name:14} {size:7,} parameters; {shown}")
print(CAVEAT)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6))
styles = styles_of({name: model.config for name, model in models.items()})  # the colours of all figures
for name in models:
    smooth = torch.tensor(losses[name]).unfold(0, 10, 10).mean(1).tolist()
    left.plot(range(10, len(losses[name]) + 1, 10), smooth, color=styles[name].color, label=name)
    right.plot(range(1, 6), exact[name], color=styles[name].color, marker=styles[name].marker, label=name)
left.set_title("Training loss")
left.set_xlabel("update")
left.set_ylabel("cross-entropy per token (nats)")
left.legend()
right.axvspan(3.5, 5.2, color="0.92")
right.set_title("Exact translations; grey: longer than in training")
right.set_xlabel("clauses")
right.set_ylabel("exact translations (%)")
right.set_xticks(range(1, 6))
figure.tight_layout()
figure.text(0.5, -0.03, CAVEAT, ha="center")

# %% [markdown]
# The three models with attention solve the lengths they were trained on; Luong's needed twice as many
# updates, as the losses on the left show. On longer sentences the picture changes: there the models must
# look at positions that never occurred in training.
#
# This is one seed of tiny models on a toy task: it illustrates, and shows nothing about which model is
# better. For that you need real data, tuned settings, several seeds and a test of significance; all of it
# is what attnbench is for. Go on with a [first experiment](first-experiment.md), read how
# [statistics](statistics.md) keep you from believing noise, or list the other designs with `attnbench
# models`.
#
# ## References
#
# - Sutskever, Vinyals, Le 2014: Sequence to sequence learning with neural networks.
#   <https://arxiv.org/abs/1409.3215>
# - Bahdanau, Cho, Bengio 2015: Neural machine translation by jointly learning to align and translate.
#   <https://arxiv.org/abs/1409.0473>
# - Luong, Pham, Manning 2015: Effective approaches to attention-based neural machine translation.
#   <https://arxiv.org/abs/1508.04025>
# - Xu et al. 2015: Show, attend and tell. <https://arxiv.org/abs/1502.03044>
# - Tay et al. 2021: Synthesizer: rethinking self-attention for Transformer models.
#   <https://arxiv.org/abs/2005.00743>
# - Jain, Wallace 2019: Attention is not explanation. <https://arxiv.org/abs/1902.10186>
# - Vaswani et al. 2017: Attention is all you need. <https://arxiv.org/abs/1706.03762>

# %%
folder = Path("runs/tour")
topics = (
    "bahdanau",
    "hard-attention",
    "static-attention",
    "scaling",
    "positions",
    "masks",
    "heads",
    "learning",
)
# A notebook shows and closes each picture below its cell; a program has them all here.
for number, topic in zip(plt.get_fignums(), topics, strict=False):
    folder.mkdir(parents=True, exist_ok=True)
    plt.figure(number).savefig(folder / f"{number}-{topic}.png", dpi=150, bbox_inches="tight")
    print("picture:", folder / f"{number}-{topic}.png")
