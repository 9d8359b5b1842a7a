"use strict";
/**
 * Translation models in plain JavaScript: vocabularies, forward pass and search. Nothing here touches the page.
 *
 * It computes what seq2seq, transformer and compare/decoding/search.py compute. A vector is a Float32Array, a
 * sequence an array of vectors; a matrix has data, rows and columns. Weights have their names in Python.
 */
const engine = (() => {
  const [PAD, UNK, BOS, EOS] = [0, 1, 2, 3];
  const [FIRST_BYTE, FIRST_PIECE] = [4, 260]; // the 256 single bytes follow the special ids
  const UNKNOWN_PENALTY = 10; // SentencePiece: a character without a piece scores so much below the worst piece
  const [SPACE, JOINER, ESCAPE] = ["▁", "￭", "␛"];
  const BROKEN = "\ufffd";
  const DECODER = new TextDecoder("utf-8", { ignoreBOM: true });
  const CONTROL = /[\x00-\x1f\x7f-\x9f\u2028\u2029]/g;
  const [LAYER_EPSILON, RMS_EPSILON, WAVES] = [1e-5, 1e-6, 10000];

  // Vocabularies.

  /** Words and punctuation marks of a text, as data/vocabulary.py defines them; UNSPACED characters are words. */
  function tokenPattern(unspaced) {
    const letter = `(?![${unspaced}])[\\p{L}\\p{N}_]`;
    const mark = "[^\\p{L}\\p{N}_\\s\\x1c-\\x1f\\x85]";
    return new RegExp(`[${unspaced}]|(?:${letter})+(?:[-'’](?:${letter})+)*|${mark}`, "gu");
  }

  const utf8 = (text) => [...new TextEncoder().encode(text)];
  const unescapeText = (text) => text.replaceAll(`${ESCAPE}1`, SPACE).replaceAll(`${ESCAPE}0`, ESCAPE);
  const isJoined = (token) => token.length > 1 && token.startsWith(JOINER);

  /**
   * Most frequent words; others are read as <unk>.
   *
   * encode returns ids and their labels, the words with the word that each id belongs to, and what is unknown.
   */
  class WordVocabulary {
    constructor({ pieces, unspaced }) {
      this.pattern = tokenPattern(unspaced);
      this.tokens = pieces;
      this.ids = new Map(pieces.map((token, id) => [token, id]));
      this.readAs = "<unk>"; // what is not in the vocabulary
    }

    encode(text) {
      const matches = [...text.matchAll(this.pattern)];
      const ids = matches.map(({ 0: word, index }, i) => {
        const joins = i > 0 && matches[i - 1].index + matches[i - 1][0].length === index;
        const id = this.ids.get(joins ? JOINER + word : word) ?? UNK;
        return id > EOS ? id : UNK;
      });
      const words = matches.map(([word]) => word);
      return { ids, labels: words, words, of: [...ids.keys()], unknown: words.filter((_, i) => ids[i] === UNK) };
    }

    label(id) {
      return isJoined(this.tokens[id]) ? this.tokens[id].slice(1) : this.tokens[id];
    }

    decode(ids) {
      const text = ids.map((id) => (isJoined(this.tokens[id]) ? "" : " ") + this.label(id)).join("");
      return text.replace(/^ /, "").replace(CONTROL, " ");
    }

    group(ids) {
      return { words: ids.map((id) => this.label(id)), of: [...ids.keys()] };
    }
  }

  /** SentencePiece unigram with the normaliser "identity"; characters without a piece are read as bytes. */
  class UnigramVocabulary {
    constructor({ pieces, scores, unspaced }) {
      this.pattern = tokenPattern(unspaced);
      this.tokens = pieces;
      this.scores = new Float32Array(bytesOf(scores).buffer);
      this.scores[UNK] = Math.min(...this.scores.slice(FIRST_PIECE)) - UNKNOWN_PENALTY;
      this.ids = new Map(pieces.slice(FIRST_PIECE).map((piece, i) => [piece, FIRST_PIECE + i]));
      this.longest = Math.max(...pieces.map((piece) => [...piece].length));
      this.readAs = "bytes";
    }

    /** Find the most probable pieces (Viterbi) with sums in fp32, in the order in which SentencePiece adds them. */
    encode(text) {
      const escaped = text.replaceAll(ESCAPE, `${ESCAPE}0`).replaceAll(SPACE, `${ESCAPE}1`);
      const characters = [...(SPACE + escaped.replaceAll(" ", SPACE))];
      const best = [{ score: 0 }];
      for (let end = 1; end <= characters.length; end++) {
        for (let begin = Math.max(0, end - this.longest); begin < end; begin++) {
          const id = this.ids.get(characters.slice(begin, end).join("")) ?? (begin === end - 1 ? UNK : null);
          if (id === null) continue;
          const score = Math.fround(this.scores[id] + best[begin].score);
          if (!best[end] || score > best[end].score) best[end] = { score, begin, id };
        }
      }
      const chosen = [];
      for (let end = characters.length; end > 0; end = best[end].begin) chosen.unshift(best[end]);
      const bytes = (begin) => utf8(characters[begin]).map((byte) => FIRST_BYTE + byte);
      const ids = chosen.flatMap(({ id, begin }) => (id === UNK ? bytes(begin) : [id]));
      const unknown = chosen.filter(({ id }) => id === UNK).map(({ begin }) => characters[begin]);
      return { ids, labels: ids.map((id) => this.label(id)), ...this.group(ids), unknown };
    }

    /** A piece inside a word begins with an ellipsis. */
    label(id) {
      const piece = this.tokens[id];
      if (id < FIRST_PIECE) return piece;
      return piece.startsWith(SPACE) ? piece.slice(1) || "␣" : `…${piece}`;
    }

    bytes(id) {
      if (id >= FIRST_BYTE && id < FIRST_PIECE) return [id - FIRST_BYTE];
      return utf8(id === UNK ? " ⁇ " : this.tokens[id].replaceAll(SPACE, " "));
    }

    /** Decode character by character: each byte that belongs to none becomes one U+FFFD, as in SentencePiece. */
    text(ids) {
      const bytes = Uint8Array.from(ids.flatMap((id) => this.bytes(id)));
      let text = "";
      for (let i = 0; i < bytes.length;) {
        const size = bytes[i] < 0xc0 ? 1 : bytes[i] < 0xe0 ? 2 : bytes[i] < 0xf0 ? 3 : 4;
        const character = DECODER.decode(bytes.subarray(i, i + size));
        const isWhole = !character.includes(BROKEN);
        text += isWhole ? character : BROKEN;
        i += isWhole ? size : 1;
      }
      return text;
    }

    decode(ids) {
      const text = this.tokens[ids[0]]?.startsWith(SPACE) ? this.text(ids).slice(1) : this.text(ids);
      return unescapeText(text).replace(CONTROL, " ");
    }

    /** Join pieces to words and punctuation marks; a piece that reaches over a border of words joins both. */
    group(ids) {
      const text = this.text(ids);
      const ends = [...text.matchAll(this.pattern)].map((match) => match.index + match[0].length);
      const borders = new Set([0, ...ends.slice(0, -1).map((end) => utf8(text.slice(0, end)).length)]);
      const [parts, of] = [[], []];
      let start = 0;
      for (const id of ids) {
        if (!parts.length || borders.has(start)) parts.push([]);
        parts.at(-1).push(id);
        of.push(parts.length - 1);
        start += this.bytes(id).length;
      }
      return { words: parts.map((part) => unescapeText(this.text(part)).trim() || SPACE), of };
    }
  }

  // Weights.

  function bytesOf(base64) {
    const text = atob(base64);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    return bytes;
  }

  /** The number that each pattern of 16 bits stands for; weights are finite. */
  const HALVES = Float32Array.from({ length: 1 << 16 }, (_, bits) => {
    const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
    const size = exponent ? 2 ** (exponent - 25) * (1024 + fraction) : fraction * 2 ** -24;
    return bits >> 15 ? -size : size;
  });

  /** Unpack fp16; or int8, where a matrix has an fp32 scale per row before its bytes, and vectors are fp32. */
  function unpack(bytes, tensors, precision) {
    const part = (Type, start, count) => new Type(bytes.slice(start, start + count * Type.BYTES_PER_ELEMENT).buffer);
    return Object.fromEntries(Object.entries(tensors).map(([name, [offset, rows, columns]]) => {
      const size = (rows || 1) * columns;
      const data = new Float32Array(size);
      if (precision === "fp16") part(Uint16Array, offset, size).forEach((bits, i) => { data[i] = HALVES[bits]; });
      else if (rows === 0) data.set(part(Float32Array, offset, size));
      else {
        const scales = part(Float32Array, offset, rows);
        part(Int8Array, offset + 4 * rows, size).forEach((value, i) => { data[i] = value * scales[Math.floor(i / columns)]; });
      }
      return [name, { data, rows: rows || 1, columns }];
    }));
  }

  // Vectors.

  const sigmoid = (x) => 1 / (1 + Math.exp(-x));
  const add = (x, y) => x.map((value, i) => value + y[i]);
  const concatenate = (...vectors) => Float32Array.from(vectors.flatMap((vector) => [...vector]));
  const embed = ({ data, columns }, id) => data.subarray(id * columns, (id + 1) * columns);

  /** W x + b; the four sums run side by side, which is faster. */
  function linear({ data, rows, columns }, bias, x) {
    const y = new Float32Array(rows);
    for (let row = 0, at = 0; row < rows; row++) {
      let i = 0, a = bias ? bias.data[row] : 0, b = 0, c = 0, d = 0;
      for (; i + 3 < columns; at += 4, i += 4) {
        a += data[at] * x[i];
        b += data[at + 1] * x[i + 1];
        c += data[at + 2] * x[i + 2];
        d += data[at + 3] * x[i + 3];
      }
      for (; i < columns; at++, i++) a += data[at] * x[i];
      y[row] = a + b + c + d;
    }
    return y;
  }

  function logSoftmax(logits) {
    const largest = logits.reduce((one, other) => Math.max(one, other));
    const shift = largest + Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - largest), 0));
    return logits.map((logit) => logit - shift);
  }

  // Attention.

  /** Attention weights of scores: their softmax at a temperature, or 1 at the first largest one. */
  function normalise(scores, { temperature, hard }) {
    if (!hard) return logSoftmax(scores.map((score) => score / temperature)).map(Math.exp);
    const largest = scores.indexOf(scores.reduce((one, other) => Math.max(one, other)));
    return scores.map((_, i) => Number(i === largest));
  }

  /** Let a query attend with all heads: its context, scores and weights by head, and the size of a head's keys. */
  function attend(energy, { keys, values }, heads, formula) {
    const [size, valueSize] = [keys[0].length / heads, values[0].length / heads];
    const factor = formula.scaled ? 1 / Math.sqrt(size) : 1;
    const context = new Float32Array(values[0].length);
    const [scores, weights] = [[], []];
    for (let head = 0; head < heads; head++) {
      scores.push(Float32Array.from(keys, (key) => factor * energy(key, head * size, (head + 1) * size)));
      weights.push(normalise(scores[head], formula));
      values.forEach((value, j) => {
        for (let i = head * valueSize; i < (head + 1) * valueSize; i++) context[i] += weights[head][j] * value[i];
      });
    }
    return { context, scores, weights, size };
  }

  function sum(begin, end, term) {
    let total = 0;
    for (let i = begin; i < end; i++) total += term(i);
    return total;
  }
  const product = (query) => (key, begin, end) => sum(begin, end, (i) => query[i] * key[i]);
  const additive = (query, vector) => (key, begin, end) => sum(begin, end, (i) => vector[i] * Math.tanh(query[i] + key[i]));

  /** Settings and weights of a model. */
  class Network {
    constructor(config, weights) {
      Object.assign(this, { config, weights });
    }

    /** Apply the linear layer of a name; without such a layer x stays as it is. */
    apply(name, x) {
      const weight = this.weights[`${name}.weight`];
      return weight ? linear(weight, this.weights[`${name}.bias`], x) : x;
    }
  }

  // Recurrent models.

  function lstmStep(input, recurrent, h, c) {
    const gate = (number, i) => input[number * h.length + i] + recurrent[number * h.length + i];
    const cell = c.map((old, i) => sigmoid(gate(1, i)) * old + sigmoid(gate(0, i)) * Math.tanh(gate(2, i)));
    return { h: cell.map((value, i) => sigmoid(gate(3, i)) * Math.tanh(value)), c: cell };
  }

  function gruStep(input, recurrent, h, c) {
    const gate = (number, i) => sigmoid(input[number * h.length + i] + recurrent[number * h.length + i]);
    const fresh = h.map((_, i) => Math.tanh(input[2 * h.length + i] + gate(0, i) * recurrent[2 * h.length + i]));
    return { h: h.map((old, i) => fresh[i] + gate(1, i) * (old - fresh[i])), c };
  }

  /** LSTM or GRU encoder-decoder, with attention before the cell (Bahdanau), after it (Luong), or none. */
  class Seq2Seq extends Network {
    cell(layer, suffix = "") {
      const part = (kind) => ["weight", "bias"].map((name) => this.weights[`${layer}.${name}_${kind}_l0${suffix}`]);
      const [input, recurrent] = [part("ih"), part("hh")];
      const step = this.config.cell === "lstm" ? lstmStep : gruStep;
      return (x, { h, c }) => step(linear(...input, x), linear(...recurrent, h), h, c);
    }

    /** Run one direction of an encoder layer; outputs are in source order. */
    read(xs, step, size, isBackward) {
      let state = { h: new Float32Array(size), c: new Float32Array(size) };
      const outputs = (isBackward ? [...xs].reverse() : xs).map((x) => {
        state = step(x, state);
        return state.h;
      });
      return { outputs: isBackward ? outputs.reverse() : outputs, ...state };
    }

    encode(ids) {
      const { direction, encoder_depth: depth, states_size: size, cell } = this.config;
      const suffixes = direction === "both" ? ["", "_reverse"] : [""];
      let xs = ids.map((id) => embed(this.weights["encoder.embedding.weight"], id));
      const summary = [];
      for (let layer = 0; layer < depth; layer++) {
        const runs = suffixes.map((suffix) => {
          const isBackward = suffix !== "" || direction === "backward";
          return this.read(xs, this.cell(`encoder.rnn.layers.${layer}`, suffix), size / suffixes.length, isBackward);
        });
        const outputs = xs.map((_, i) => concatenate(...runs.map((run) => run.outputs[i])));
        xs = layer < 2 ? outputs : outputs.map((output, i) => add(xs[i], output));
        summary.push(...runs.map(({ h }) => h), ...(cell === "lstm" ? runs.map(({ c }) => c) : []));
      }
      const map = (name) => xs.map((state) => this.apply(`decoder.attention.scorer.${name}`, state));
      const memory = { keys: map("key"), values: map("value") };
      return { memory, state: this.start(concatenate(...summary)), attention: {} };
    }

    start(summary) {
      const { start, start_size: total, num_layers: layers, hidden_size: size, output_size: fed, attention } = this.config;
      let first = start === "zeros" ? new Float32Array(total) : summary;
      if (start === "bridge") first = this.apply("decoder.bridge", summary).map(Math.tanh);
      const states = Array.from({ length: layers }, (_, layer) => {
        const part = first.slice((layer * total) / layers, ((layer + 1) * total) / layers);
        return { h: part.slice(0, size), c: part.slice(size) };
      });
      const nothing = new Float32Array(attention?.input_feeding ? fed : 0);
      return { layers: states, feedback: attention?.placement === "before" ? states.at(-1).h : nothing };
    }

    attend(state, memory, formula) {
      const { score, num_heads: heads } = this.config.attention;
      const query = this.apply("decoder.attention.scorer.query", state);
      const vector = this.weights["decoder.attention.scorer.energy.weight"]?.data;
      const scaled = score === "scaled-dot" && formula.scaled;
      return attend(vector ? additive(query, vector) : product(query), memory, heads, { ...formula, scaled });
    }

    step(token, state, memory, formula) {
      const { attention: settings, readout: kind } = this.config;
      const [isBefore, isAfter] = [settings?.placement === "before", settings?.placement === "after"];
      const embedded = embed(this.weights["decoder.embedding.weight"], token);
      let attention = isBefore ? this.attend(state.feedback, memory, formula) : undefined;
      let top = concatenate(embedded, attention ? attention.context : state.feedback);
      const layers = state.layers.map((old, layer) => {
        const next = this.cell(`decoder.rnn.layers.${layer}`)(top, old);
        top = layer < 2 ? next.h : add(top, next.h);
        return next;
      });
      if (isAfter) attention = this.attend(top, memory, formula);
      const parts = settings?.context_to_readout ? [top, attention.context] : [top];
      if (kind !== "none" && !isAfter) parts.push(embedded);
      let readout = this.apply("decoder.readout", concatenate(...parts));
      if (kind === "tanh") readout = readout.map(Math.tanh);
      if (kind === "maxout") readout = readout.map((x, i) => Math.max(x, readout[i + 1])).filter((_, i) => i % 2 === 0);
      const feedback = isBefore ? top : settings?.input_feeding ? readout : state.feedback;
      const next = { layers, feedback };
      return { logits: this.apply("output", readout), state: next, attention: attention ? { cross: attention } : {} };
    }
  }

  // The Transformer.

  /** Sine and cosine of each angle of a position. */
  const waves = (position, size) => Array.from({ length: size / 2 }, (_, i) => {
    const angle = position * Math.exp((-Math.log(WAVES) * 2 * i) / size);
    return [Math.sin(angle), Math.cos(angle)];
  });

  /** Turn each pair of numbers of each head by the angle of its position. */
  function rotate(x, position, size) {
    const angles = waves(position, size);
    return x.map((value, i) => {
      const [sine, cosine] = angles[Math.floor((i % size) / 2)];
      return i % 2 ? x[i - 1] * sine + value * cosine : value * cosine - x[i + 1] * sine;
    });
  }

  class Transformer extends Network {
    norm(name, x) {
      const isRms = this.config.norm_kind === "rms";
      const [weight, bias] = ["weight", "bias"].map((part) => this.weights[`${name}.${part}`]);
      const mean = isRms ? 0 : sum(0, x.length, (i) => x[i]) / x.length;
      const variance = sum(0, x.length, (i) => (x[i] - mean) ** 2) / x.length;
      const factor = 1 / Math.sqrt(variance + (isRms ? RMS_EPSILON : LAYER_EPSILON));
      return x.map((value, i) => (value - mean) * factor * weight.data[i] + (bias ? bias.data[i] : 0));
    }

    /** Apply a sublayer to all positions, with its residual connection and its norm before or after. */
    residual(name, xs, sublayer) {
      const isPre = this.config.norm === "pre";
      const outputs = sublayer(isPre ? xs.map((x) => this.norm(name, x)) : xs);
      return xs.map((x, i) => (isPre ? add(x, outputs[i]) : this.norm(name, add(x, outputs[i]))));
    }

    embed(side, id, position) {
      const x = embed(this.weights[`${side}.table.weight`], id).map((value) => value * Math.sqrt(this.config.d_model));
      return this.config.positions === "sinusoidal" ? add(x, waves(position, x.length).flat()) : x;
    }

    attend(name, query, source, formula, rows) {
      const row = attend(product(query), source, this.config.num_heads, formula);
      rows.push(row);
      return this.apply(`${name}.project_out`, row.context);
    }

    /** Self-attention of new positions, which follow those of the cache; each sees the cache and all of them. */
    attendOwn(name, xs, cache, formula, rows) {
      const { query_size: size, attention_size: width, positions } = this.config;
      const first = cache.keys.length;
      const turn = (x, i) => (positions === "rotary" ? rotate(x, first + i, size) : x);
      const projected = xs.map((x) => this.apply(`${name}.project_in`, x));
      cache.keys = cache.keys.concat(projected.map((x, i) => turn(x.slice(width, 2 * width), i)));
      cache.values = cache.values.concat(projected.map((x) => x.slice(2 * width)));
      return projected.map((x, i) => this.attend(name, turn(x.slice(0, width), i), cache, formula, rows));
    }

    feedForward(name, x) {
      const inner = this.apply(`${name}.widen`, x);
      const half = inner.length / 2;
      const gated = () => inner.slice(0, half).map((a, i) => a * sigmoid(a) * inner[half + i]);
      return this.apply(`${name}.narrow`, this.config.activation === "swiglu" ? gated() : inner.map((a) => Math.max(a, 0)));
    }

    /** Apply all layers of a side to new positions; memory holds keys and values of the source by layer. */
    run(side, xs, caches, memory, formula) {
      const attention = {};
      const rows = (kind, layer) => (attention[`${kind}.${layer}`] = []);
      const grown = caches.map((cache) => ({ ...cache }));
      grown.forEach((cache, layer) => {
        const name = `${side}.layers.${layer}`;
        const own = (inputs) => this.attendOwn(`${name}.attention`, inputs, cache, formula, rows(side, layer));
        const cross = (input) => {
          const query = this.apply(`${name}.cross.project_query`, input);
          return this.attend(`${name}.cross`, query, memory[layer], formula, rows("cross", layer));
        };
        xs = this.residual(`${name}.around_attention.norm`, xs, own);
        if (memory) xs = this.residual(`${name}.around_cross.norm`, xs, (inputs) => inputs.map(cross));
        const forward = (inputs) => inputs.map((input) => this.feedForward(`${name}.feed_forward`, input));
        xs = this.residual(`${name}.around_feed_forward.norm`, xs, forward);
      });
      const states = this.config.norm === "pre" ? xs.map((x) => this.norm(`${side}.norm`, x)) : xs;
      return { states, caches: grown, attention };
    }

    encode(ids, formula) {
      const { encoder_layers: encoders, decoder_layers: decoders, attention_size: width } = this.config;
      const empty = (length) => Array.from({ length }, () => ({ keys: [], values: [] }));
      const xs = ids.map((id, position) => this.embed("encoder", id, position));
      const { states, attention } = this.run("encoder", xs, empty(encoders), undefined, formula);
      const memory = empty(decoders).map((_, layer) => {
        const projected = states.map((state) => this.apply(`decoder.layers.${layer}.cross.project_memory`, state));
        return { keys: projected.map((x) => x.slice(0, width)), values: projected.map((x) => x.slice(width)) };
      });
      return { memory, state: empty(decoders), attention };
    }

    step(token, state, memory, formula) {
      const x = this.embed("decoder", token, state[0].keys.length);
      const { states, caches, attention } = this.run("decoder", [x], state, memory, formula);
      const rows = Object.entries(attention).map(([name, [row]]) => [name, row]);
      return { logits: this.apply("output", states[0]), state: caches, attention: Object.fromEntries(rows) };
    }
  }

  // Search.

  /** Return the indices of the largest numbers, of equal ones the lowest first. */
  function largest(values, count) {
    const least = values.toSorted().at(-count) ?? -Infinity;
    const indices = [...values.keys()].filter((i) => values[i] >= least);
    return indices.sort((one, other) => values[other] - values[one] || one - other).slice(0, count);
  }

  const divisor = (length, { alpha, normalization }) => (normalization === "wu" ? (5 + length) / 6 : length) ** alpha;

  /**
   * Translate ids by greedy (beam 1) or beam search, as compare/decoding/search.py does.
   *
   * Yields after each step the steps of the best hypothesis so far: token, the five most probable ones, and what
   * each attention computed; at last those of the translation, which has ended.
   */
  function* search(model, ids, { beam, formula }) {
    const limit = Math.floor(model.max_ratio * ids.length) + model.extra_tokens;
    const { memory, state, attention } = model.network.encode([...ids, EOS], formula);
    let open = [{ score: 0, token: BOS, state, steps: [] }];
    let best = { value: -Infinity };
    let ended = 0;
    for (let time = 0; time <= limit; time++) {
      const candidates = open.flatMap((one) => {
        const { logits, state: next, attention: rows } = model.network.step(one.token, one.state, memory, formula);
        const logp = logSoftmax(logits);
        const five = largest(logp, 5).map((token) => ({ token, probability: Math.exp(logp[token]) }));
        const isAllowed = (token) => (time < limit ? token !== PAD && token !== BOS : token === EOS);
        const allowed = logp.map((value, token) => (isAllowed(token) ? value : -Infinity));
        return largest(allowed, beam === 1 ? 1 : 2 * beam).map((token) => {
          const steps = [...one.steps, { token, five, attention: rows }];
          return { score: one.score + allowed[token], token, state: next, steps };
        });
      });
      candidates.sort((one, other) => (one.score === other.score ? 0 : other.score - one.score));
      for (const { token, steps, score } of candidates.slice(0, beam)) {
        if (token !== EOS || score === -Infinity) continue;
        ended++;
        const value = score / divisor(time + 1, model.penalty);
        if (value > best.value) best = { value, steps };
      }
      open = candidates.filter(({ token }) => token !== EOS).slice(0, beam);
      const reachable = open.length ? open[0].score / divisor(limit + 1, model.penalty) : -Infinity;
      if (ended >= beam || best.value >= reachable) break;
      yield { steps: open[0].steps, attention, ended: false };
    }
    yield { ...best, attention, ended: true };
  }

  const CLASSES = { words: WordVocabulary, unigram: UnigramVocabulary, seq2seq: Seq2Seq, transformer: Transformer };

  /** Build the models of a page with their vocabularies, from its content and their packed weights in base64. */
  function loadModels({ models, vocabularies }, texts) {
    const built = vocabularies.map((vocabulary) => new CLASSES[vocabulary.kind](vocabulary));
    return models.map((model, i) => {
      const weights = unpack(bytesOf(texts[i]), model.tensors, model.precision);
      const network = new CLASSES[model.family](model.config, weights);
      return { ...model, network, src: built[model.src], tgt: built[model.tgt] };
    });
  }

  return { EOS, loadModels, search };
})();
