"use strict";
/** Drawings of attention weights with a choice of sentences and heads; several viewers may be on a page. */
const attnbench = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const POINTED = ".map [data-row][aria-label]"; // cells of maps, and target words beside lines
  const FAINTEST = 3; // hundredths: lines below it are not drawn

  /** An element with text, attributes and children; text of models and data goes in here as text alone. */
  function make(tag, { text, attributes = {}, children = [] } = {}) {
    const isDrawn = tag === "svg" || tag === "path";
    const element = isDrawn ? document.createElementNS(SVG, tag) : document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  /**
   * The heat map of one head: a row a target word, a column a source word.
   *
   * A view has the words src and tgt, weights in hundredths row by row, links of a gold alignment, and names of
   * the columns, by which columns of several figures belong together.
   */
  function drawMap({ src, tgt, weights, links = [], columns = [...src.keys()] }) {
    const gold = new Set(links.map(([row, column]) => row * src.length + column));
    const heads = src.map((word, column) => make("th", {
      attributes: { scope: "col", "data-column": columns[column] }, children: [make("span", { text: word })],
    }));
    const rows = tgt.map((word, row) => {
      const cells = src.map((other, column) => {
        const place = row * src.length + column;
        const weight = (weights[place] / 100).toFixed(2);
        const words = `${word} ← ${other}: ${weight}${gold.has(place) ? ", gold link" : ""}`;
        const numbers = { "data-row": row, "data-column": columns[column], style: `--weight: ${weights[place]}%;` };
        const cell = make("td", { attributes: { tabindex: place ? "-1" : "0", "aria-label": words, ...numbers } });
        cell.classList.toggle("gold", gold.has(place));
        return cell;
      });
      return make("tr", { children: [make("th", { text: word, attributes: { scope: "row", "data-row": row } }), ...cells] });
    });
    const head = make("thead", { children: [make("tr", { children: [make("td", { attributes: { class: "corner" } }), ...heads] })] });
    return make("table", { children: [head, make("tbody", { children: rows })] });
  }

  /** The same as lines from source words on the left to target words on the right; a thick line is a large weight. */
  function drawLines({ src, tgt, weights, columns = [...src.keys()] }) {
    const strongest = (row) => src.map((word, column) => ({ word, weight: weights[row * src.length + column] }))
      .filter(({ weight }) => weight >= FAINTEST).sort((one, other) => other.weight - one.weight).slice(0, 3)
      .map(({ word, weight }, i) => `${i ? ", " : " ← "}${word}: ${(weight / 100).toFixed(2)}`).join("");
    const sources = src.map((text, column) => make("li", { text, attributes: { "data-column": columns[column] } }));
    const targets = tgt.map((text, row) => make("li", {
      text, attributes: { "data-row": row, tabindex: row ? "-1" : "0", "aria-label": `${text}${strongest(row)}` },
    }));
    const paths = weights.flatMap((weight, place) => {
      const [row, column] = [Math.floor(place / src.length), place % src.length];
      if (!(weight >= FAINTEST)) return [];
      const [from, to] = [column + 0.5, row + 0.5];
      return [make("path", { attributes: {
        d: `M0 ${from} C50 ${from} 50 ${to} 100 ${to}`, "data-row": row, "data-column": columns[column],
        "stroke-opacity": 0.15 + (0.85 * weight) / 100, "stroke-width": 1 + (5 * weight) / 100,
      } })];
    });
    const height = Math.max(src.length, tgt.length);
    const size = { viewBox: `0 0 100 ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" };
    const list = (label, children) => make("ol", { attributes: { "aria-label": label }, children });
    const parts = [list("source", sources), make("svg", { attributes: size, children: paths }), list("translation", targets)];
    return make("div", { attributes: { class: "lines", style: `--rows: ${height};` }, children: parts });
  }

  /** A model's figure: its name, a choice of its heads, and a drawing of the view that show(viewOf) returns for one. */
  function makeFigure(model, form) {
    const caption = make("figcaption", { text: model.name });
    const element = make("figure", { attributes: { class: "map" }, children: [caption] });
    if (model.color) element.style.setProperty("--heat", model.color);
    if (!model.heads.length) {
      element.append(make("p", { text: model.trouble || "has no attention to the source", attributes: { class: "note" } }));
      return { element, show() {} };
    }
    const box = make("div", { attributes: { class: "box" } });
    let view = null;
    const show = (viewOf = view) => {
      view = viewOf;
      if (view) box.replaceChildren((form() === "map" ? drawMap : drawLines)(view(model.chosen)));
    };
    if (model.heads.length > 1) {
      const options = model.heads.map((head) => make("option", { text: head }));
      const select = make("select", { attributes: { "aria-label": `Head of ${model.name || model.label}` }, children: options });
      select.selectedIndex = model.chosen;
      select.addEventListener("change", () => {
        model.chosen = select.selectedIndex; // it stays for the next sentence
        show();
      });
      caption.append(select);
    }
    element.append(box, make("p", { attributes: { class: "scale" }, children: [make("span")] }));
    return { element, show };
  }

  /** Go from cell to cell, or from word to word, by the arrow keys; of each figure one is reached by Tab. */
  function moveFocus(event) {
    const [down, right] = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key] ?? [0, 0];
    const from = event.target.closest(POINTED);
    if (!from || down === right) return;
    event.preventDefault();
    const words = from.closest("ol")?.children;
    const rows = from.closest("tbody")?.rows;
    const next = words
      ? words[Number(from.dataset.row) + down + right]
      : rows[from.parentElement.sectionRowIndex + down]?.cells[from.cellIndex + right];
    if (!next?.matches(POINTED)) return;
    from.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  /** Mark a source word in all figures, or a target word in its own one; undefined: nothing. */
  function mark(maps, element) {
    for (const marked of maps.querySelectorAll(".marked")) marked.classList.remove("marked");
    maps.classList.toggle("marking", Boolean(element));
    const { row, column } = element?.dataset ?? {};
    const [within, name, value] = column === undefined ? [element?.closest(".map"), "row", row] : [maps, "column", column];
    for (const same of within?.querySelectorAll(`[data-${name}="${CSS.escape(value)}"]`) ?? []) same.classList.add("marked");
  }

  /** Show the weight of what is pointed at or has the focus, mark what belongs to it, and explain it. */
  function startPointing(maps, tip, explain = () => {}) {
    let pointed = null;
    const place = () => {
      if (!pointed) return;
      const { left, top, bottom } = pointed.getBoundingClientRect();
      const { width, height } = tip.getBoundingClientRect();
      tip.style.left = `${Math.max(4, Math.min(left, document.documentElement.clientWidth - width - 4))}px`;
      tip.style.top = `${top > height + 8 ? top - height - 6 : bottom + 6}px`;
    };
    const show = (element) => {
      pointed = element?.ariaLabel ? element : null;
      tip.hidden = !pointed;
      if (pointed) tip.textContent = pointed.ariaLabel;
      place();
      mark(maps, element);
      if (element) explain(element);
    };
    const partOf = (event) => event.target.closest(".map :is([data-row], [data-column])");
    const focused = () => (maps.contains(document.activeElement) ? document.activeElement.closest(POINTED) : null);
    maps.addEventListener("mouseover", (event) => show(partOf(event) ?? focused()));
    maps.addEventListener("mouseleave", () => show(focused()));
    maps.addEventListener("focusin", (event) => show(partOf(event)));
    maps.addEventListener("focusout", () => show(null));
    maps.addEventListener("keydown", moveFocus);
    window.addEventListener("scroll", place, { capture: true, passive: true }); // focus may scroll the page
  }

  /** A viewer: pick a sentence, and see what every model attends to. */
  function startViewer(viewer) {
    const { models, sentences } = JSON.parse(viewer.querySelector("script").textContent);
    const maps = viewer.querySelector(".maps");
    const pick = viewer.querySelector("select.pick");
    const figures = models.map((model) => makeFigure(model, () => "map"));
    maps.append(...figures.map(({ element }) => element));
    const show = (number) => {
      const { weights, ...sentence } = sentences[number];
      figures.forEach((figure, place) => figure.show((head) => ({ ...sentence, weights: weights[place][head] })));
    };
    if (pick) {
      pick.append(...sentences.map(({ number, src }) => make("option", { text: `${number}: ${src.join(" ")}` })));
      const step = (by) => {
        pick.selectedIndex = (pick.selectedIndex + by + sentences.length) % sentences.length;
        show(pick.selectedIndex);
      };
      pick.addEventListener("change", () => show(pick.selectedIndex));
      viewer.querySelector(".previous").addEventListener("click", () => step(-1));
      viewer.querySelector(".next").addEventListener("click", () => step(1));
    }
    startPointing(maps, document.getElementById("tip"));
    viewer.hidden = false;
    show(0);
  }

  const startViewers = () => document.querySelectorAll(".viewer").forEach(startViewer);

  /** Start a page of its own, which can fill a projector; its frame, such as a notebook's, becomes as high as it. */
  function startPage() {
    startViewers();
    document.getElementById("projector").addEventListener("change", ({ target: { checked } }) => {
      document.querySelector(checked ? "#ask, .maps" : "main").scrollIntoView(); // the first of them in the page
    });
    const frame = window.frameElement; // null where there is none, or one of another origin
    if (frame) new ResizeObserver(() => { frame.style.height = `${document.body.scrollHeight + 2}px`; }).observe(document.body);
  }

  return { make, makeFigure, startPage, startPointing, startViewers };
})();
