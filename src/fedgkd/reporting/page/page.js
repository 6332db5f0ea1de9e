// Draws the figures of the report and keeps them in step with the controls and with the reader's light or dark colours.
"use strict";

(() => {
  const report = JSON.parse(document.getElementById("report-data").textContent);
  const byId = (id) => document.getElementById(id);
  const switchedOff = new Set();
  const charts = new Map(); // element -> what it shows
  // plotly would offer to send the data to its makers' server; nothing leaves this page.
  const CONFIG = {
    displaylogo: false, responsive: true, showSendToCloud: false, plotlyServerURL: "",
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
  };

  // --- colours ------------------------------------------------------------------------------------------------------

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const names = ["ink", "muted", "grid", "line", "surface"];
    return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  }

  function painted(value, ink) {
    return JSON.parse(JSON.stringify(value).replaceAll('"@ink"', JSON.stringify(ink)));
  }

  function layout(own, margin = { l: 56, r: 12, t: 12, b: 48 }) {
    const { ink, muted, grid, line, surface } = colours();
    const colour = { gridcolor: grid, linecolor: line, zerolinecolor: muted, tickfont: { color: muted } };
    const axis = { ...colour, automargin: true };
    return {
      ...own,
      xaxis: { ...axis, zeroline: false, rangemode: "tozero", ...own.xaxis },
      yaxis: { ...axis, ...own.yaxis },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: muted, activecolor: ink },
      margin,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: ink },
      hoverlabel: { bgcolor: surface, bordercolor: line, font: { color: ink } },
      legend: { orientation: "h", yanchor: "bottom", y: 1.02, x: 0 },
    };
  }

  // --- charts -------------------------------------------------------------------------------------------------------

  function draw(element, spec) {
    charts.set(element, spec);
    const traces = painted(spec.data, colours().ink);
    for (const trace of traces) trace.visible = !switchedOff.has(trace.meta);
    const config = { ...CONFIG, toImageButtonOptions: { format: "svg", filename: spec.id } };
    Plotly.react(element, traces, layout(spec.layout), config);
  }

  function place(container, specs) {
    for (const old of container.querySelectorAll(".plot")) {
      charts.delete(old);
      Plotly.purge(old);
    }
    container.replaceChildren(...specs.map((spec) => figure(spec.id, spec.title, spec.caption)));
    for (const spec of specs) draw(byId(spec.id), spec);
  }

  function figure(id, title, caption) {
    const whole = document.createElement("figure");
    const head = document.createElement("h3");
    head.textContent = title;
    const plot = document.createElement("div");
    plot.id = id;
    plot.className = "plot";
    plot.setAttribute("role", "img");
    plot.setAttribute("aria-label", `${title}. ${caption}`);
    const below = document.createElement("figcaption");
    below.textContent = caption;
    whole.append(head, plot, below);
    return whole;
  }

  // --- one federation -----------------------------------------------------------------------------------------------

  function showCell() {
    const cell = report.cells.find((one) => one.key === byId("cell").value);
    const all = (selector) => document.querySelectorAll(selector);
    for (const table of all("[data-cell]")) table.hidden = table.dataset.cell !== cell.key;
    for (const box of all("[data-method]")) box.hidden = !cell.methods.includes(box.dataset.method);
    place(byId("charts"), cell.charts);
    offerCollaborations(cell.key);
  }

  function switchMethod(event) {
    const key = event.target.value;
    if (event.target.checked) switchedOff.delete(key);
    else switchedOff.add(key);
    for (const [element, spec] of charts) draw(element, spec);
  }

  // --- collaboration ------------------------------------------------------------------------------------------------

  let shown = null; // the collaboration that is looked at, with its matrices unpacked

  function unpack(text, kind) {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    return new kind(bytes.buffer);
  }

  function offerCollaborations(cell) {
    if (!report.collaborations.length) return;
    const offered = report.collaborations.filter((one) => one.cell === cell);
    byId("collaboration").hidden = offered.length === 0;
    byId("collaborator").replaceChildren(...offered.map((one) => new Option(one.method, one.key)));
    if (offered.length) {
      byId("collaborator").value = offered[offered.length - 1].key;
      showCollaboration();
    }
  }

  function showCollaboration() {
    const one = report.collaborations.find((other) => other.key === byId("collaborator").value);
    const size = one.labels.length;
    const matrices = Object.entries(one.matrices).map(([name, matrix]) => ({
      name,
      meaning: matrix.meaning,
      values: unpack(matrix.values, Float32Array),
      counts: matrix.edges.counts,
      pairs: unpack(matrix.edges.pairs, Uint16Array),
    }));
    shown = { ...one, size, matrices, truth: one.likeness && unpack(one.likeness, Float32Array) };
    byId("tie").replaceChildren(...matrices.map(({ name }) => new Option(name, name)).reverse());
    byId("collaboration-title").textContent = one.title;
    byId("collaboration-notes").textContent = one.notes.join(" ");
    const slider = byId("round");
    slider.max = one.rounds.length - 1;
    slider.value = one.chosen;
    layOutHeatMaps();
    drawRound();
  }

  function layOutHeatMaps() {
    const container = byId("heat-maps");
    for (const old of container.querySelectorAll(".plot")) Plotly.purge(old);
    const panels = shown.matrices.map(({ name, meaning }) => figure(`heat-${name}`, name, meaning));
    if (shown.truth) panels.push(figure("heat-truth", "true labels", shown.likeness_meaning));
    container.replaceChildren(...panels);
  }

  function drawRound() {
    const at = Number(byId("round").value);
    const round = shown.rounds[at];
    const chosen = at === shown.chosen ? ", the one that validation chose" : "";
    byId("round-name").textContent = `${round}${chosen}`;
    byId("round").setAttribute("aria-valuetext", `round ${round}${chosen}`);
    const cells = shown.size ** 2;
    for (const { name, values } of shown.matrices) {
      const now = values.subarray(at * cells, (at + 1) * cells);
      drawHeatMap(`heat-${name}`, now, besideDiagonal(byId("same-colours").checked ? values : now));
    }
    if (shown.truth) drawHeatMap("heat-truth", shown.truth, [0, 1]);
    drawNetwork(at);
  }

  function besideDiagonal(values) {
    const cells = shown.size ** 2;
    let low = Infinity;
    let high = -Infinity;
    values.forEach((value, place) => {
      if ((place % cells) % (shown.size + 1) !== 0 && Number.isFinite(value)) {
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
    });
    return low <= high ? [low, high] : [0, 1];
  }

  function drawHeatMap(id, values, [zmin, zmax]) {
    const z = shown.labels.map((_, row) => Array.from(values.subarray(row * shown.size, (row + 1) * shown.size)));
    const { muted } = colours();
    const trace = {
      type: "heatmap", x: shown.labels, y: shown.labels, z, zmin, zmax, colorscale: "Cividis", hoverongaps: false,
      hovertemplate: "%{y} and %{x}: %{z:.4g}<extra></extra>",
      colorbar: {
        orientation: "h", thickness: 10, len: 0.8, y: -0.12, yanchor: "top", outlinewidth: 0,
        tickvals: [zmin, zmax], ticktext: [zmin, zmax].map((value) => String(Number(value.toPrecision(4)))),
        tickangle: 0, tickfont: { color: muted, size: 11 },
      },
    };
    // As many names as there is room for.
    const tickvals = shown.labels.filter((_, place) => place % Math.ceil(shown.size / 10) === 0);
    const axis = { type: "category", tickvals, showgrid: false, ticks: "", tickangle: 0, constrain: "domain" };
    const down = { autorange: "reversed", scaleanchor: "x" };
    // Columns are in the order of the rows, so their names can do without room.
    const showticklabels = tickvals.join("").length <= MOST_LETTERS;
    const own = { xaxis: { ...axis, showticklabels }, yaxis: { ...axis, ...down } };
    Plotly.react(id, [trace], layout(own, { l: 40, r: 8, t: 8, b: 64 }), { ...CONFIG, displayModeBar: false });
  }

  // Below a heat map.
  const MOST_LETTERS = 24;

  // Edges of similar width share a trace: a trace has one width only.
  const WIDTHS = [0.75, 1.5, 2.5, 3.5, 5];

  function drawNetwork(at) {
    const { ink, muted, surface } = colours();
    const { values, counts, pairs } = shown.matrices.find(({ name }) => name === byId("tie").value);
    const cells = shown.size ** 2;
    const start = counts.slice(0, at).reduce((sum, count) => sum + count, 0);
    const edges = Array.from({ length: counts[at] }, (_, k) => {
      const [i, j] = pairs.subarray(2 * (start + k), 2 * (start + k) + 2);
      const weight = (values[at * cells + i * shown.size + j] + values[at * cells + j * shown.size + i]) / 2;
      return { i, j, weight };
    });
    const strongest = Math.max(...edges.map(({ weight }) => weight), 0);
    const lines = WIDTHS.map((width) => ({
      type: "scatter", mode: "lines", x: [], y: [], line: { width, color: muted }, opacity: 0.55,
      hoverinfo: "skip", showlegend: false,
    }));
    for (const { i, j, weight } of edges) {
      const line = lines[Math.min(WIDTHS.length - 1, Math.floor((weight / strongest) * WIDTHS.length))];
      line.x.push(shown.places[i][0], shown.places[j][0], null);
      line.y.push(shown.places[i][1], shown.places[j][1], null);
    }
    const dots = shown.groups.map(({ label, colour, members }) => ({
      type: "scatter", mode: "markers+text", name: label && `class ${label}`, showlegend: Boolean(label),
      x: members.map((k) => shown.places[k][0]),
      y: members.map((k) => shown.places[k][1]),
      text: members.map((k) => shown.labels[k]),
      textposition: "top center",
      textfont: { color: ink, size: 12 },
      hovertext: members.map(describeClient),
      hovertemplate: "%{hovertext}<extra></extra>",
      marker: {
        color: colour, opacity: 1, size: members.map((k) => 22 * Math.sqrt(shown.areas[k])),
        line: { width: 1, color: surface },
      },
    }));
    const none = { visible: false };
    const showlegend = dots.some((dot) => dot.showlegend);
    const own = { xaxis: none, yaxis: { ...none, scaleanchor: "x" }, showlegend, hovermode: "closest" };
    Plotly.react("network", [...lines, ...dots], layout(own, { l: 8, r: 8, t: 8, b: 8 }), CONFIG);
  }

  function describeClient(k) {
    const nodes = shown.sizes.length ? `, ${shown.sizes[k]} nodes` : "";
    const most = shown.majority.length ? `, mostly class ${shown.majority[k]}` : "";
    return `${shown.names[k]}${nodes}${most}`;
  }

  // --- all together -------------------------------------------------------------------------------------------------

  function drawAll() {
    for (const [element, spec] of charts) draw(element, spec);
    if (shown) drawRound();
  }

  let waiting = false;
  function drawRoundSoon() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      drawRound();
    });
  }

  for (const box of document.querySelectorAll("[data-charts]")) place(box, report[box.dataset.charts]);
  if (report.cells.length) {
    byId("cell").addEventListener("change", showCell);
    byId("methods").addEventListener("change", switchMethod);
    if (report.collaborations.length) {
      byId("collaborator").addEventListener("change", showCollaboration);
      byId("tie").addEventListener("change", drawRound);
      byId("same-colours").addEventListener("change", drawRound);
      byId("round").addEventListener("input", drawRoundSoon);
    }
    showCell();
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
})();
