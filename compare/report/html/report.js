(() => {
  const { make, startViewers } = attnbench; // of viewer.js
  const THEMES = ["as the system", "light", "dark"];

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
      if (!runs.length) continue; // the baseline
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

  /** Hide or show a column in all rows. */
  function showColumn(table, column, shown) {
    for (const row of table.rows) row.cells[column].hidden = !shown;
  }

  /** A list of check boxes that hide and show the columns of a table; the optional ones are hidden at first. */
  function makeChooser(table, title) {
    const heads = [...table.tHead.rows[0].cells];
    const summary = make("summary");
    const count = () => {
      const shown = heads.filter((head) => !head.hidden).length;
      summary.textContent = `Columns: ${shown} of ${heads.length}`;
    };
    const items = heads.slice(1).map((head, place) => {
      const box = make("input", { attributes: { type: "checkbox" } });
      const show = (shown) => {
        box.checked = shown;
        showColumn(table, place + 1, shown);
      };
      show(!("optional" in head.dataset));
      box.addEventListener("change", () => {
        show(box.checked);
        count();
      });
      return { item: make("li", { children: [make("label", { children: [box, head.textContent] })] }), show };
    });
    const all = make("button", { text: "All", attributes: { type: "button", "aria-label": `All columns of ${title}` } });
    all.addEventListener("click", () => {
      items.forEach(({ show }) => show(true));
      count();
    });
    count();
    const list = make("ul", { children: items.map(({ item }) => item) });
    return make("details", { attributes: { class: "columns" }, children: [summary, list, all] });
  }

  /** The cells of a table that are shown, as texts; a run has its model before its name. */
  function shownCells(table) {
    const texts = (row) => [...row.cells].filter((cell) => !cell.hidden).map((cell) => cell.textContent.trim());
    const bodies = [...table.tBodies].flatMap((body) => {
      const [model] = texts(body.rows[0]);
      return [...body.rows].filter((row) => !row.hidden).map((row) => {
        const [name, ...others] = texts(row);
        return row.classList.contains("run") ? [`${model}, ${name}`, ...others] : [name, ...others];
      });
    });
    return [texts(table.tHead.rows[0]), ...bodies];
  }

  /** A figure as spreadsheets and programs read it; other text that begins like a formula gets an apostrophe. */
  function csvCell(text) {
    const figure = text.replace("−", "-").replace(/(?<=\d),(?=\d{3})/g, "");
    if (/^[+-]?\d+(\.\d+)?$/.test(figure)) return figure;
    const safe = /^[' ]*[=+\-@\n＝＋－＠]/.test(text) ? `'${text}` : text;
    return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  }

  const LATEX = {
    "\\": "\\textbackslash{}", "&": "\\&", "%": "\\%", $: "\\$", "#": "\\#", _: "\\_", "{": "\\{", "}": "\\}",
    "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "<": "\\textless{}", ">": "\\textgreater{}", "|": "\\textbar{}",
    "[": "{[}", "*": "{*}", "–": "--", "−": "$-$", "±": "$\\pm$", "×": "$\\times$",
    "≈": "$\\approx$", "▲": "$\\blacktriangle$", "▼": "$\\blacktriangledown$", "△": "$\\triangle$", "▽": "$\\triangledown$",
  };

  function latexTable(rows, numeric) {
    const line = (cells) => `${cells.map((text) => [...text].map((sign) => LATEX[sign] ?? sign).join("")).join(" & ")} \\\\`;
    const [head, ...body] = rows;
    return [
      "% needs \\usepackage{booktabs,amssymb}",
      `\\begin{tabular}{${numeric.map((right) => (right ? "r" : "l")).join("")}}`,
      "\\toprule", line(head), "\\midrule", ...body.map(line), "\\bottomrule", "\\end{tabular}", "",
    ].join("\n");
  }

  function download(text, name, type) {
    const url = URL.createObjectURL(new Blob([text], { type }));
    make("a", { attributes: { href: url, download: name } }).click();
    URL.revokeObjectURL(url);
  }

  /** Above a table: the choice of its columns, and what is shown as CSV or LaTeX. */
  function startTools(figure) {
    const table = figure.querySelector("table");
    const box = figure.querySelector(".box");
    const title = box.ariaLabel;
    const name = title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "");
    const button = (kind, write) => {
      const made = make("button", { text: kind, attributes: { type: "button", "aria-label": `Download ${title} as ${kind}` } });
      made.addEventListener("click", write);
      return made;
    };
    const heads = () => [...table.tHead.rows[0].cells].filter((head) => !head.hidden);
    const tools = [
      button("CSV", () => {
        const lines = shownCells(table).map((cells) => `${cells.map(csvCell).join(",")}\n`);
        download(lines.join(""), `${name}.csv`, "text/csv");
      }),
      button("LaTeX", () => {
        const numeric = heads().map((head) => head.classList.contains("num"));
        download(latexTable(shownCells(table), numeric), `${name}.tex`, "application/x-tex");
      }),
    ];
    if (table.tHead.rows[0].cells.length > 4) tools.unshift(makeChooser(table, title));
    box.before(make("div", { attributes: { class: "tools" }, children: tools }));
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

  startTheme(document.getElementById("theme"));
  document.querySelectorAll(".models").forEach(startFolding);
  document.querySelectorAll("figure.table").forEach(startTools); // before headings become buttons
  document.querySelectorAll(".sortable table").forEach(startSorting);
  document.querySelectorAll("section").forEach(startChoice);
  document.querySelectorAll("#filter").forEach(startFilter);
  startViewers();
})();
