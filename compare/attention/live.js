/** The page that translates what its reader types with each model, word by word, and shows the attention. */
(() => {
  const { make, makeFigure, startPointing, startProjector } = attnbench; // of viewer.js
  const [MOST_WORDS, MOST_CHARACTERS] = [100, 1000]; // of a sentence
  const PAUSE = 120; // milliseconds between two target words
  const ADDITIVE = "v · tanh(W s + U h)";
  const FORMULAS = { additive: ADDITIVE, concat: ADDITIVE, dot: "s · h", general: "s · W h", "scaled-dot": "q · k" };
  const [START, END] = ["(start)", "(end)"];
  const element = (id) => document.getElementById(id);
  const isPressed = (button) => button.ariaPressed === "true";
  const formula = () => ({
    temperature: 2 ** Number(element("temperature").value),
    hard: isPressed(element("hard")),
    scaled: !isPressed(element("unscaled")),
  });

  const number = (value) => (Math.abs(value) >= 1e4 ? value.toExponential(2) : String(Number(value.toPrecision(3))));
  const labelOf = (vocabulary, token) => (token === engine.EOS ? END : vocabulary.label(token));

  /** List the heads that a head stands for: itself, or those that a mean is of, a layer's or all of a kind. */
  function partsOf(heads, { kind, layer, head }) {
    if (head !== null) return [{ layer, head }];
    return heads.filter((one) => one.kind === kind && one.head !== null && (layer === kind || one.layer === layer));
  }

  /** A model's part of the page: its translation, its attention, the next words, and the formula with numbers. */
  class Panel {
    constructor(model) {
      this.model = model;
      this.heads = model.heads.map((head) => ({ ...head, parts: partsOf(model.heads, head) }));
      const chosen = this.heads.findLastIndex(({ kind }) => kind === "cross"); // the widest mean
      this.shown = { name: "", label: model.label, heads: this.heads.map(({ name }) => name), chosen };
      this.figure = makeFigure(this.shown, () => element("form").value);
      const part = (tag, name) => (this[name] = make(tag, { attributes: { class: name } }));
      const bleu = model.bleu === null ? "" : `, BLEU ${model.bleu.toFixed(1)}`;
      const weights = Number(model.params.toPrecision(2)).toLocaleString("en");
      const details = make("small", { text: `${weights} weights${bleu}` });
      const above = [make("h2", { text: model.label, children: [details] }), part("p", "translation"), part("p", "time")];
      const below = [part("p", "after"), part("ol", "next"), part("p", "formula")];
      this.element = make("section", { attributes: { class: "panel" }, children: [...above, this.figure.element, ...below] });
      this.element.style.setProperty("--family", model.color);
      this.translation.lang = model.languages[1];
      const point = ({ target }) => {
        const row = target.closest("[data-row]")?.dataset.row;
        if (row === undefined) return;
        this.row = Number(row);
        this.explain();
      };
      for (const event of ["mouseover", "focusin"]) this.figure.element.addEventListener(event, point);
      this.figure.element.addEventListener("change", () => this.explain());
    }

    /** Begin to translate a text; returns its words or characters that the model does not know. */
    begin(text) {
      const { ids, labels, words, of, unknown } = this.model.src.encode(text);
      this.source = { words: [...words, END], of: [...of, words.length], labels: [...labels, END] };
      this.search = engine.search(this.model, ids, { beam: Number(element("beam").value), formula: formula() });
      Object.assign(this, { ended: false, row: null, ms: 0 });
      return [...new Set(unknown)];
    }

    /** Compute the next word and draw what there is. */
    advance() {
      const start = performance.now();
      this.result = this.search.next().value;
      this.ms += performance.now() - start;
      this.ended = this.result.ended;
      this.draw();
    }

    draw() {
      const tokens = this.result.steps.map(({ token }) => token).filter((token) => token !== engine.EOS);
      const { words, of } = this.model.tgt.group(tokens);
      this.target = this.ended ? { words: [...words, END], of: [...of, words.length] } : { words, of };
      this.translation.textContent = this.model.tgt.decode(tokens) + (this.ended ? "" : " …");
      this.time.textContent = `${Math.round(this.ms)} ms, ${this.result.steps.length} steps`;
      this.figure.show((head) => this.view(this.heads[head]));
      this.explain();
    }

    /** Words of the rows and columns of a kind of attention, and the word of each piece. */
    axes(kind) {
      const { target, source } = this;
      const earlier = target.of.slice(0, -1); // the word of each piece before the last
      const before = { words: [START, ...target.words.slice(0, 1 + earlier.at(-1))], of: [0, ...earlier.map((word) => word + 1)] };
      return { cross: [target, source], encoder: [source, source], decoder: [target, before] }[kind];
    }

    rowsOf(layer) {
      return this.result.attention[layer] ?? this.result.steps.map(({ attention }) => attention[layer]);
    }

    /** Join the weights of pieces to those of words: sums over source pieces, means over target pieces. */
    view({ kind, parts }) {
      const [rows, columns] = this.axes(kind);
      const weights = new Array(rows.words.length * columns.words.length).fill(0);
      const size = rows.words.map((_, word) => rows.of.filter((other) => other === word).length * parts.length);
      for (const { layer, head } of parts) {
        this.rowsOf(layer).forEach((row, piece) => row.weights[head].forEach((weight, column) => {
          weights[rows.of[piece] * columns.words.length + columns.of[column]] += (100 * weight) / size[rows.of[piece]];
        }));
      }
      const before = (i) => columns.words.slice(0, i).join("").length; // as models may divide a sentence differently
      const keys = columns.words.map((_, i) => (kind === "decoder" ? `${this.model.label} ${i}` : before(i)));
      return { src: columns.words, tgt: rows.words, weights, keys };
    }

    /** Show the next words and the formula of the row pointed at; else of the last word. */
    explain() {
      if (!this.result) return;
      const { kind, parts } = this.heads[this.shown.chosen] ?? { kind: "cross" };
      const [rows, columns] = this.axes(kind);
      const last = rows.words.length - 1;
      const lastWord = rows.words.findLastIndex((word) => word !== END && /\p{L}/u.test(word));
      const row = Math.max(0, Math.min(this.row ?? (this.ended ? lastWord : last), last));
      for (const label of this.figure.element.querySelectorAll(":is(th, li)[data-row]")) {
        label.classList.toggle("current", Number(label.dataset.row) === row);
      }
      const piece = rows.of.indexOf(row);
      const step = kind === "encoder" ? this.result.steps.length - 1 : piece;
      this.after.textContent = `Step ${step + 1}: the five most probable`;
      this.next.replaceChildren(...this.result.steps[step].five.map(({ token, probability }) => {
        const texts = [labelOf(this.model.tgt, token), probability.toFixed(3)];
        const item = make("li", { children: texts.map((text) => make("span", { text })) });
        item.style.setProperty("--share", `${100 * probability}%`);
        return item;
      }));
      const labels = kind === "decoder" ? columns.of.map((word) => columns.words[word]) : this.source.labels;
      const lines = parts ? this.compute(parts, piece, labels) : ["The decoder reads the last state of the encoder alone."];
      this.formula.replaceChildren(...lines.map((text) => make("span", { text })));
    }

    /** Write the formula of a row with the numbers of its largest weight; of a mean, those of its sharpest head. */
    compute(parts, piece, labels) {
      const largest = ({ layer, head }) => Math.max(...this.rowsOf(layer)[piece].weights[head]);
      const { layer, head } = parts.reduce((one, other) => (largest(other) > largest(one) ? other : one));
      const { scores: { [head]: scores }, weights: { [head]: weights } } = this.rowsOf(layer)[piece];
      const { temperature, hard, scaled } = formula();
      const { query_size: width, hidden_size: hidden, attention } = this.model.config;
      const column = weights.indexOf(Math.max(...weights));
      const word = labels[column].replace(/^\((.+)\)$/, "$1");
      const score = attention?.score ?? "scaled-dot";
      const size = width ?? (attention.attention_size ?? hidden) / attention.num_heads;
      const root = score === "scaled-dot" && scaled ? ` / √${size}` : "";
      const product = root ? `${number(scores[column] * Math.sqrt(size))}${root} = ` : "";
      const energy = `${FORMULAS[score]}${root}`;
      const tau = temperature === 1 ? "" : ` / ${number(temperature)}`;
      const powers = [...scores].map((one) => Math.exp(one / temperature));
      const total = powers.reduce((one, other) => one + other);
      const share = `${number(powers[column])} / ${number(total)} = ${weights[column].toFixed(2)}`;
      const soft = [`a = exp(e${tau}) / Σ exp(e${tau})`, `a(${word}) = exp(${number(scores[column])}${tau}) / Σ = ${share}`];
      const { name } = this.heads.find((one) => one.layer === layer && one.head === head);
      return [
        ...(parts.length > 1 ? [`sharpest of ${parts.length} heads: ${name}`] : []),
        `e = ${energy}${!scaled && score !== "scaled-dot" ? ", which is never scaled" : ""}`,
        `e(${word}) = ${product}${number(scores[column])}`,
        ...(hard ? ["a = 1 for the largest e, 0 for all others", `a(${word}) = 1`] : soft),
        `context c = Σ a ${score === "scaled-dot" ? "v" : "h"}`,
      ];
    }
  }

  const weights = [...document.querySelectorAll("script.weights")].map((script) => script.textContent);
  const panels = engine.loadModels(JSON.parse(element("content").textContent), weights).map((model) => new Panel(model));
  let latest = 0;

  /** Translate the sentence with all models, a word each in turn; a later call ends an earlier one. */
  async function translate(pause) {
    const run = ++latest;
    const text = element("sentence").value.trim();
    const words = text.split(/\s+/).length;
    let refusal = text ? "" : "Type a sentence first.";
    const over = [[words, MOST_WORDS, "words"], [text.length, MOST_CHARACTERS, "characters"]].find(([count, most]) => count > most);
    if (over) refusal = `This sentence has ${over[0]} ${over[2]}: the page translates up to ${over[1]}.`;
    element("message").textContent = refusal;
    if (refusal) return;
    const notes = {};
    for (const panel of panels) {
      const unknown = panel.begin(text);
      if (unknown.length) (notes[`${unknown.join(" ")}, read as ${panel.model.src.readAs}`] ??= []).push(panel.model.label);
    }
    const lines = Object.entries(notes).map(([note, labels]) => `Not in the vocabulary of ${labels.join(", ")}: ${note}.`);
    element("message").textContent = lines.join(" ");
    while (panels.some(({ ended }) => !ended)) {
      for (const panel of panels) if (!panel.ended) panel.advance();
      await new Promise((resolve) => setTimeout(resolve, pause));
      if (run !== latest) return;
    }
  }

  const slow = () => translate(matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : PAUSE);
  element("panels").append(...panels.map((panel) => panel.element));
  element("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    slow();
  });
  for (const example of document.querySelectorAll(".example")) {
    example.addEventListener("click", () => {
      element("sentence").value = example.textContent;
      slow();
    });
  }
  const tools = document.querySelector(".tools");
  tools.addEventListener("click", ({ target }) => {
    if (!target.ariaPressed) return;
    target.ariaPressed = String(!isPressed(target));
    translate(0);
  });
  tools.addEventListener("change", ({ target }) => {
    if (target.id === "form") panels.forEach((panel) => panel.figure.show());
    else translate(0);
  });
  element("temperature").addEventListener("input", () => {
    element("tau").textContent = number(formula().temperature);
    translate(0);
  });
  startPointing(element("panels"), element("tip"));
  startProjector();
  if (element("sentence").value) slow();
})();
