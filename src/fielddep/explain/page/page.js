// Draws the figures of the page: in the colours of its theme, as wide as there is room, anew when either changes.
(() => {
  "use strict";

  const figures = JSON.parse(document.getElementById("figures").textContent);
  const options = { displayModeBar: false, responsive: false, scrollZoom: false, doubleClick: false };

  // As a colour, "@blue" is --blue of the style sheet, "@blue/0.1" the same, nearly transparent. A name stays as it is.
  function themed(value, style, key) {
    if (typeof value === "string" && value.startsWith("@") && /color(scale)?$/.test(key)) {
      const [name, opacity] = value.slice(1).split("/");
      const colour = style.getPropertyValue(`--${name}`).trim();
      if (opacity === undefined) return colour;
      const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
      return `rgba(${red},${green},${blue},${opacity})`;
    }
    if (Array.isArray(value)) return value.map((item) => themed(item, style, key));
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, themed(item, style, name)]));
    }
    return value;
  }

  // Square cells: as large as the width allows, without labels where they would be too small to read.
  function fitCells(layout, figure, width) {
    const n = figure.cells;
    const length = (text) => text.replace(/&\w+;/g, "x").length;
    const longest = (axis) => Math.max(...figure.layout[axis].ticktext.map(length));
    const largest = figure.small ? 34 : 44;
    for (const labelled of [true, false]) {
      const size = figure.small || width < 500 ? 10 : 12;
      const room = (axis) => (labelled ? 0.57 * size * longest(axis) + 10 : 6);
      const left = room("yaxis") + 22;
      const bottom = room("xaxis") + 26;
      const cell = Math.min(largest, (width - left - 4) / n);
      if (cell >= size - 1 || !labelled) {
        Object.assign(layout, { width: Math.ceil(left + n * cell + 4), height: Math.ceil(bottom + n * cell + 4) });
        layout.margin = { l: left, r: 4, t: 4, b: bottom };
        for (const axis of [layout.xaxis, layout.yaxis]) {
          Object.assign(axis, { automargin: false, showticklabels: labelled, tickfont: { size } });
          axis.title.font = { size: size };
        }
        layout.xaxis.title.standoff = 4;
        layout.yaxis.title.standoff = 4;
        return;
      }
    }
  }

  function draw() {
    const style = getComputedStyle(document.documentElement);
    for (const [name, figure] of Object.entries(figures)) {
      const place = document.getElementById(`plot-${name}`);
      const { data, layout } = themed({ data: figure.data, layout: figure.layout }, style);
      layout.width = place.clientWidth;
      if (figure.cells) fitCells(layout, figure, layout.width);
      place.style.height = `${layout.height}px`;
      Plotly.react(place, data, layout, options);
    }
  }

  let waiting;
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return; // a phone hides its address bar while scrolling
    width = window.innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(() => draw(), 120);
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw());

  // Paper is white and narrow: the light theme, and tables unfolded.
  let folded = [];
  window.addEventListener("beforeprint", () => {
    document.documentElement.dataset.printing = "";
    folded = [...document.querySelectorAll("details:not([open])")].filter((element) => !element.closest(".row"));
    folded.forEach((element) => (element.open = true));
    draw();
  });
  window.addEventListener("afterprint", () => {
    delete document.documentElement.dataset.printing;
    folded.forEach((element) => (element.open = false));
    draw();
  });

  draw();
})();
