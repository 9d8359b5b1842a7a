/** The page that translates what its reader types with each model, word by word, and shows the attention. */
(() => {
  const { make, makeFigure, startPage, startPointing } = attnbench; // in viewer.js
  const MOST_CHARACTERS = 600;
  const PAUSE = 120; // milliseconds between two target words
  const ADDITIVE = "v · tanh(W s + U h)";
  const FORMULAS = { additive: ADDITIVE, concat: ADDITIVE, dot: "s · h", general: "s · W h", "scaled-dot": "q · k" };
  const [START, END] = ["(start)", "(end)"];
  const field = (id) => document.getElementById(id);
  const formula = () => ({
    temperature: 2 ** Number(field("temperature").value),
    hard: field("hard").checked,
    scaled: !field("unscaled").checked,
  });

  const number = (value) => (Math.abs(value) >= 1e6 ? value.toExponential(2) : String(Number(value.toPrecision(3))));
  const labelOf = (vocabulary, token) => (token === engine.EOS ? END : vocabulary.label(token));

  /** A model's part of the page: its translation, its attention, the next words, and the formula with numbers. */
  class Panel {
    constructor(model, element) {
      Object.assign(this, { model, element });
      this.heads = model.heads.length ? model.heads : [{ kind: "cross", name: "no attention", parts: [] }];
      const chosen = this.heads.findLastIndex(({ kind }) => kind === "cross"); // the widest mean
      this.shown = { name: "", label: model.label, heads: this.heads.map(({ name }) => name), chosen };
      this.figure = makeFigure(this.shown, () => field("form").value);
      for (const name of ["translation", "time", "after", "next", "formula"]) this[name] = element.querySelector(`.${name}`);
      this.time.after(this.figure.element);
      this.figure.element.addEventListener("change", () => this.explain());
    }

    /** Begin to translate a text; returns a note on words or characters that the model does not know. */
    begin(text) {
      const { ids, labels, words, of, unknown } = this.model.src.encode(text);
      const source = { words: [...words, END], of: [...of, words.length], labels: [...labels, END] };
      const search = engine.search(this.model, ids, { beam: Number(field("beam").value), formula: formula() });
      this.coming = { text, source, search, ms: 0 };
      return unknown.length ? `${[...new Set(unknown)].join(", ")}, read as ${this.model.src.readAs}` : "";
    }

    /** Compute the next word; returns whether the translation has ended. */
    advance() {
      const start = performance.now();
      this.coming.result = this.coming.search.next().value;
      this.coming.ms += performance.now() - start;
      return this.coming.result.ended;
    }

    /** Draw what has been computed. */
    draw() {
      if (this.coming.text !== this.text) this.row = null; // it stays while the formula changes
      Object.assign(this, this.coming);
      const { steps, ended } = this.result;
      const tokens = steps.map(({ token }) => token).filter((token) => token !== engine.EOS);
      const { words, of } = this.model.tgt.group(tokens);
      this.target = ended ? { words: [...words, END], of: [...of, words.length] } : { words, of };
      this.translation.textContent = this.model.tgt.decode(tokens) + (ended ? "" : " …");
      this.time.textContent = `${Math.round(this.ms)} ms, ${steps.length} steps`;
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
      const names = columns.words.map((_, i) => (kind === "decoder" ? `${this.model.label} ${i}` : before(i)));
      return { src: columns.words, tgt: rows.words, weights, columns: names };
    }

    /** Show the next words and the formula of a row, as long as no other is pointed at; at first of the last word. */
    explain(pointed) {
      if (!this.result) return;
      if (pointed !== undefined) this.row = Number(pointed);
      const { kind, parts } = this.heads[this.shown.chosen];
      const [rows, columns] = this.axes(kind);
      const last = rows.words.length - 1;
      const lastWord = rows.words.findLastIndex((word) => word !== END && /\p{L}/u.test(word));
      const row = Math.max(0, Math.min(this.row ?? (this.result.ended ? lastWord : last), last));
      for (const label of this.figure.element.querySelectorAll(":is(th, li)[data-row]")) {
        label.classList.toggle("current", Number(label.dataset.row) === row);
      }
      const piece = rows.of.indexOf(row);
      const step = kind === "encoder" ? this.result.steps.length - 1 : piece;
      this.after.textContent = `Step ${step + 1}: the five most probable`;
      this.next.replaceChildren(...this.result.steps[step].five.map(({ token, probability }) => {
        const texts = [labelOf(this.model.tgt, token), probability.toFixed(3)];
        const style = `--share: ${100 * probability}%;`;
        return make("li", { attributes: { style }, children: texts.map((text) => make("span", { text })) });
      }));
      const labels = kind === "decoder" ? columns.of.map((word) => columns.words[word]) : this.source.labels;
      const lines = parts.length ? this.compute(parts, piece, labels) : ["The decoder reads the last state of the encoder alone."];
      this.formula.replaceChildren(...lines.map((text) => make("span", { text })));
    }

    /** Write the formula of a row with the numbers of its largest weight; of a mean, those of its sharpest head. */
    compute(parts, piece, labels) {
      const largest = ({ layer, head }) => Math.max(...this.rowsOf(layer)[piece].weights[head]);
      const { layer, head, name } = parts.reduce((one, other) => (largest(other) > largest(one) ? other : one));
      const { scores: { [head]: scores }, weights: { [head]: weights }, size } = this.rowsOf(layer)[piece];
      const { temperature, hard, scaled } = formula();
      const score = this.model.config.attention?.score ?? "scaled-dot";
      const column = weights.indexOf(Math.max(...weights));
      const word = labels[column].replace(/^\((.+)\)$/, "$1");
      const root = score === "scaled-dot" && scaled ? ` / √${size}` : "";
      const product = root ? `${number(scores[column] * Math.sqrt(size))}${root} = ` : "";
      const tau = temperature === 1 ? "" : ` / ${number(temperature)}`;
      const powers = [...scores].map((one) => Math.exp(one / temperature));
      const total = powers.reduce((one, other) => one + other);
      const quotient = total < Infinity ? `${number(powers[column])} / ${number(total)} = ` : "";
      const share = `${quotient}${weights[column].toFixed(2)}`;
      const soft = [`a = exp(e${tau}) / Σ exp(e${tau})`, `a(${word}) = exp(${number(scores[column])}${tau}) / Σ = ${share}`];
      return [
        ...(parts.length > 1 ? [`sharpest of ${parts.length} heads: ${name}`] : []),
        `e = ${FORMULAS[score]}${root}${!scaled && score !== "scaled-dot" ? ", which is never scaled" : ""}`,
        `e(${word}) = ${product}${number(scores[column])}`,
        ...(hard ? ["a = 1 for the largest e, 0 for all others", `a(${word}) = 1`] : soft),
        `context c = Σ a ${score === "scaled-dot" ? "v" : "h"}`,
      ];
    }
  }

  const weights = [...document.querySelectorAll("script.weights")].map((script) => script.textContent);
  const models = engine.loadModels(JSON.parse(field("content").textContent), weights);
  const panels = [...document.querySelectorAll(".panel")].map((element, i) => new Panel(models[i], element));
  let latest = 0;

  /** Translate the sentence with all models, a word each in turn; a later call ends an earlier one. */
  async function translate({ isSlow }) {
    const text = field("sentence").value.trim();
    const tooLong = `This text of ${text.split(/\s+/).length} words is too long: at most ${MOST_CHARACTERS} characters are translated.`;
    const refusal = !text ? "Type a sentence first." : text.length > MOST_CHARACTERS ? tooLong : "";
    field("message").textContent = refusal;
    if (refusal) return;
    const run = ++latest;
    field("panels").ariaBusy = "true";
    const byNote = Map.groupBy(panels, (panel) => panel.begin(text));
    byNote.delete("");
    const labels = (some) => some.map(({ model }) => model.label).join(", ");
    const notes = [...byNote].map(([note, some]) => `Not in the vocabulary of ${labels(some)}: ${note}.`);
    field("message").textContent = notes.join(" ");
    for (let open = panels; open.length;) {
      const running = open.filter((panel) => !panel.advance());
      open.filter((panel) => isSlow || !running.includes(panel)).forEach((panel) => panel.draw());
      open = running;
      await new Promise((resolve) => setTimeout(resolve, isSlow ? PAUSE : 0));
      if (run !== latest) return;
    }
    field("panels").ariaBusy = "false";
  }

  field("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    if (event.submitter?.className === "example") field("sentence").value = event.submitter.textContent;
    translate({ isSlow: !matchMedia("(prefers-reduced-motion: reduce)").matches });
  });
  const update = ({ target }) => {
    field("tau").textContent = number(formula().temperature);
    if (target.id === "form") panels.filter(({ result }) => result).forEach((panel) => panel.draw());
    else translate({ isSlow: false });
  };
  for (const event of ["input", "change"]) document.querySelector(".tools").addEventListener(event, update);
  const panelOf = (part) => panels.find(({ element }) => element.contains(part));
  startPointing(field("panels"), field("tip"), (part) => panelOf(part).explain(part.dataset.row));
  startPage();
  if (field("sentence").value) field("ask").requestSubmit();
})();
