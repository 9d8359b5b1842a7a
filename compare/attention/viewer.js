"use strict";
/** Heat maps of attention weights with a choice of sentences and heads; several viewers may be on a page. */
const attnbench = (() => {
  /** An element with text, attributes and children; text of models and data goes in here as text alone. */
  function make(tag, { text, attributes = {}, children = [] } = {}) {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  /** The heat-map of one head of a model: a row a target word, a column a source word. */
  function drawMap(sentence, weights) {
    const { src, tgt, links } = sentence;
    const gold = new Set(links.map(([row, column]) => row * src.length + column));
    const heads = src.map((word) => make("th", { attributes: { scope: "col" }, children: [make("span", { text: word })] }));
    const rows = tgt.map((word, row) => {
      const cells = src.map((other, column) => {
        const place = row * src.length + column;
        const weight = (weights[place] / 100).toFixed(2);
        const words = `${word} ← ${other}: ${weight}${gold.has(place) ? ", gold link" : ""}`;
        const cell = make("td", { attributes: { tabindex: place ? "-1" : "0", "aria-label": words } });
        cell.style.setProperty("--weight", `${weights[place]}%`);
        cell.classList.toggle("gold", gold.has(place));
        return cell;
      });
      return make("tr", { children: [make("th", { text: word, attributes: { scope: "row" } }), ...cells] });
    });
    const head = make("thead", { children: [make("tr", { children: [make("td", { attributes: { class: "corner" } }), ...heads] })] });
    return make("table", { children: [head, make("tbody", { children: rows })] });
  }

  /** A model's figure: its name, a choice of its heads, and its map. */
  function drawModel(model, weights, sentence) {
    const caption = make("figcaption", { text: model.name });
    const figure = make("figure", { attributes: { class: "map" }, children: [caption] });
    if (model.color) figure.style.setProperty("--heat", model.color);
    if (!weights.length) {
      figure.append(make("p", { text: model.trouble || "has no attention to the source", attributes: { class: "note" } }));
      return figure;
    }
    const box = make("div", { attributes: { class: "box" } });
    const show = () => box.replaceChildren(drawMap(sentence, weights[model.chosen]));
    if (model.heads.length > 1) {
      const options = model.heads.map((head) => make("option", { text: head }));
      const select = make("select", { attributes: { "aria-label": `Head of ${model.name}` }, children: options });
      select.selectedIndex = model.chosen;
      select.addEventListener("change", () => {
        model.chosen = select.selectedIndex; // it stays for the next sentence
        show();
      });
      caption.append(select);
    }
    figure.append(box, make("p", { attributes: { class: "scale" }, children: [make("span")] }));
    show();
    return figure;
  }

  /** Go from cell to cell by the arrow keys; of each map one cell is reached by Tab. */
  function moveFocus(event) {
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const step = steps[event.key];
    const cell = event.target.closest(".map tbody td");
    if (!step || !cell) return;
    event.preventDefault();
    const row = cell.parentElement.parentElement.rows[cell.parentElement.sectionRowIndex + step[0]];
    const next = row?.cells[cell.cellIndex + step[1]];
    if (next?.tagName !== "TD") return;
    cell.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  /** Show the weight of the cell that is pointed at or has the focus. */
  function startTip(maps, tip) {
    let cell = null;
    const place = () => {
      if (!cell) return;
      const { left, top, bottom } = cell.getBoundingClientRect();
      const { width, height } = tip.getBoundingClientRect();
      tip.style.left = `${Math.max(4, Math.min(left, document.documentElement.clientWidth - width - 4))}px`;
      tip.style.top = `${top > height + 8 ? top - height - 6 : bottom + 6}px`;
    };
    const show = (found) => {
      cell = found;
      tip.hidden = !cell;
      if (cell) tip.textContent = cell.ariaLabel;
      place();
    };
    const cellOf = (event) => event.target.closest(".map tbody td");
    const focused = () => (maps.contains(document.activeElement) ? document.activeElement.closest("td") : null);
    maps.addEventListener("mouseover", (event) => show(cellOf(event) ?? focused()));
    maps.addEventListener("mouseleave", () => show(focused()));
    maps.addEventListener("focusin", (event) => show(cellOf(event)));
    maps.addEventListener("focusout", () => show(null));
    window.addEventListener("scroll", place, { capture: true, passive: true }); // focus may scroll the page
  }

  /** A viewer: pick a sentence, and see what every model attends to. */
  function startViewer(viewer) {
    const { models, sentences } = JSON.parse(viewer.querySelector("script").textContent);
    const maps = viewer.querySelector(".maps");
    const pick = viewer.querySelector("select.pick");
    const show = (number) => {
      const sentence = sentences[number];
      maps.replaceChildren(...models.map((model, place) => drawModel(model, sentence.weights[place], sentence)));
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
    maps.addEventListener("keydown", moveFocus);
    startTip(maps, document.getElementById("tip"));
    viewer.hidden = false;
    show(0);
  }

  /** Let a button make each map fill the window, with letters that a hall can read. */
  function startProjector() {
    const button = document.getElementById("projector");
    button.hidden = false;
    button.addEventListener("click", () => {
      const on = document.documentElement.toggleAttribute("data-projector");
      button.setAttribute("aria-pressed", String(on));
      document.querySelector(on ? ".maps" : "main").scrollIntoView();
    });
  }

  /** Make the frame that shows this page, such as a notebook's, as high as the page. */
  function fitFrame() {
    let frame = null;
    try {
      frame = window.frameElement;
    } catch { /* a frame of another origin keeps its height */ }
    if (!frame) return;
    new ResizeObserver(() => { frame.style.height = `${document.body.scrollHeight + 2}px`; }).observe(document.body);
  }

  const startViewers = () => document.querySelectorAll(".viewer").forEach(startViewer);

  /** Start the page that shows one sentence. */
  function startPage() {
    startViewers();
    startProjector();
    fitFrame();
  }

  return { make, startPage, startViewers };
})();
