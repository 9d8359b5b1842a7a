"use strict";
(() => {
  const THEMES = ["as the system", "light", "dark"];

  /** An element with text, attributes and children; text of models and data goes in here as text alone. */
  function make(tag, { text, attributes = {}, children = [] } = {}) {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  /** Let the button switch through the themes; the choice is saved where the browser allows it. */
  function startTheme(button) {
    const show = (theme) => {
      button.textContent = `Theme: ${theme}`;
      if (theme === THEMES[0]) delete document.documentElement.dataset.theme;
      else document.documentElement.dataset.theme = theme;
    };
    let now = THEMES[0];
    try {
      now = localStorage.getItem("attnbench-theme") ?? now;
    } catch { /* a file may be denied its storage */ }
    if (!THEMES.includes(now)) now = THEMES[0];
    show(now);
    button.hidden = false;
    button.addEventListener("click", () => {
      now = THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
      show(now);
      try {
        localStorage.setItem("attnbench-theme", now);
      } catch { /* as above */ }
    });
  }

  /** Return the sort key of a row: a number where the cell has one; unknown values come last. */
  function sortKey(cell) {
    if (cell.classList.contains("num")) return cell.dataset.order && Number(cell.dataset.order);
    return cell.textContent === "–" ? undefined : cell.textContent;
  }

  function inOrder(one, other) {
    return typeof one === "number" ? one - other : one.localeCompare(other, undefined, { numeric: true });
  }

  /** Sort a table's bodies by a column, each with the rows of its runs; equals keep their order. */
  function sortTable(table, column, direction) {
    const keyed = [...table.tBodies].map((body) => ({ body, key: sortKey(body.rows[0].cells[column]) }));
    keyed.sort((one, other) => {
      if (one.key === undefined || other.key === undefined) {
        return (one.key === undefined) - (other.key === undefined);
      }
      return direction * inOrder(one.key, other.key);
    });
    table.append(...keyed.map(({ body }) => body));
  }

  /** Make a button of each heading. */
  function startSorting(table) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = make("button", { text: head.textContent, attributes: { type: "button" } });
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        // A figure's first click shows the largest, a name's the first of the alphabet.
        const first = head.classList.contains("num") ? "descending" : "ascending";
        const other = first === "ascending" ? "descending" : "ascending";
        const order = head.ariaSort === first ? other : first;
        heads.forEach((each) => each.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", order);
        sortTable(table, column, order === "ascending" ? 1 : -1);
      });
    });
  }

  /** Fold the runs of each model away under a button. */
  function startFolding(table) {
    for (const body of table.tBodies) {
      const [model, ...runs] = body.rows;
      const name = model.cells[0];
      const button = make("button", { text: name.textContent, attributes: { type: "button" } });
      const fold = (folded) => {
        runs.forEach((run) => { run.hidden = folded; });
        button.setAttribute("aria-expanded", String(!folded));
      };
      fold(true);
      button.className = "fold";
      button.addEventListener("click", () => fold(!runs[0].hidden));
      name.replaceChildren(button);
    }
  }

  /** Of drawings that are a choice, show one at a time. */
  function startChoice(section) {
    const drawings = [...section.querySelectorAll("[data-choice]")];
    if (drawings.length < 2) return;
    const select = make("select", {
      children: drawings.map(({ dataset }) => make("option", { text: dataset.choice })),
    });
    const show = () => drawings.forEach((each) => { each.hidden = each.dataset.choice !== select.value; });
    select.addEventListener("change", show);
    const label = make("label", { text: "Against ", children: [select] });
    drawings[0].before(make("div", { attributes: { class: "controls" }, children: [label] }));
    show();
  }

  /** Show the sentences of some length that hold some text. */
  function startFilter(form) {
    const sentences = [...document.querySelectorAll(".sentence")];
    const { from, to, text, count } = form.elements;
    const filter = () => {
      const low = from.value === "" ? 0 : Number(from.value);
      const high = to.value === "" ? Infinity : Number(to.value);
      const wanted = text.value.trim().toLowerCase();
      for (const sentence of sentences) {
        const words = Number(sentence.dataset.words);
        sentence.hidden = words < low || words > high || !sentence.textContent.toLowerCase().includes(wanted);
      }
      count.value = `${sentences.filter((each) => !each.hidden).length} of ${sentences.length} shown`;
    };
    form.addEventListener("input", filter);
    form.hidden = false;
    filter();
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
    const caption = make("figcaption", { text: `${model.label}, seed ${model.seed}` });
    const figure = make("figure", { attributes: { class: "map" }, children: [caption] });
    if (!weights.length) {
      figure.append(make("p", { text: model.trouble || "has no attention to the source", attributes: { class: "note" } }));
      return figure;
    }
    const box = make("div", { attributes: { class: "box" } });
    const show = () => box.replaceChildren(drawMap(sentence, weights[model.chosen]));
    if (model.heads.length > 1) {
      const options = model.heads.map((head) => make("option", { text: head }));
      const select = make("select", { attributes: { "aria-label": `Head of ${model.label}` }, children: options });
      select.selectedIndex = model.chosen;
      select.addEventListener("change", () => {
        model.chosen = select.selectedIndex; // it stays for the next sentence
        show();
      });
      caption.append(select);
    }
    figure.append(box);
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

  /** The alignment viewer: pick a sentence, and see what every model attends to. */
  function startViewer(viewer) {
    const { models, sentences } = JSON.parse(document.getElementById("viewer-data").textContent);
    const pick = document.getElementById("pick");
    const maps = document.getElementById("maps");
    pick.append(...sentences.map(({ number, src }) => make("option", { text: `${number}: ${src.join(" ")}` })));
    const show = () => {
      const sentence = sentences[pick.selectedIndex];
      maps.replaceChildren(...models.map((model, place) => drawModel(model, sentence.weights[place], sentence)));
    };
    const step = (by) => {
      pick.selectedIndex = (pick.selectedIndex + by + sentences.length) % sentences.length;
      show();
    };
    pick.addEventListener("change", show);
    document.getElementById("previous").addEventListener("click", () => step(-1));
    document.getElementById("next").addEventListener("click", () => step(1));
    maps.addEventListener("keydown", moveFocus);
    startTip(maps, document.getElementById("tip"));
    viewer.hidden = false;
    show();
  }

  startTheme(document.getElementById("theme"));
  document.querySelectorAll(".models").forEach(startFolding);
  document.querySelectorAll(".sortable table").forEach(startSorting);
  document.querySelectorAll("section").forEach(startChoice);
  document.querySelectorAll("#filter").forEach(startFilter);
  document.querySelectorAll("#viewer").forEach(startViewer);
})();
