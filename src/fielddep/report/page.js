// Draws the figures of the page in the colours of the theme and as wide as the window allows. Both may change.
(() => {
  "use strict";

  const figures = JSON.parse(document.getElementById("figures").textContent);
  const options = { displayModeBar: false, responsive: false, scrollZoom: false, doubleClick: false };

  // The colour "@up" is --up of the style sheet, and "@up/0.1" the same with an opacity. Other texts stay unchanged.
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

  // An escaped text as Plotly shows it.
  function shown(text) {
    return text.replace(/&(lt|gt|amp);/g, (_, name) => ({ lt: "<", gt: ">", amp: "&" })[name]);
  }

  // Square cells as large as the width allows, with the largest labels that fit, or none.
  function fitCells(layout, figure, width) {
    const n = figure.cells;
    const longest = (axis) => Math.max(...figure.layout[axis].ticktext.map((text) => shown(text).length));
    const largest = figure.small ? 34 : 44;
    const sizes = figure.small ? [10, 8] : [width < 500 ? 10 : 12];
    for (const size of [...sizes, 0]) {
      const room = (axis) => (size ? 0.57 * size * longest(axis) + 10 : 6);
      const left = room("yaxis") + 22;
      const bottom = room("xaxis") + 26;
      const cell = Math.min(largest, (width - left - 4) / n);
      if (cell >= size - 1) {
        Object.assign(layout, { width: Math.ceil(left + n * cell + 4), height: Math.ceil(bottom + n * cell + 4) });
        layout.margin = { l: left, r: 4, t: 4, b: bottom };
        for (const axis of [layout.xaxis, layout.yaxis]) {
          Object.assign(axis, { automargin: false, showticklabels: size > 0, tickfont: { size: size || 10 } });
          axis.title.font = { size: sizes[0] };
        }
        layout.xaxis.title.standoff = 4;
        layout.yaxis.title.standoff = 4;
        return;
      }
    }
  }

  // Makes room on the right for the labels at the ends of lines.
  function fitLabels(layout) {
    const pen = document.createElement("canvas").getContext("2d");
    const widths = layout.annotations.map(({ ax, font, text }) => {
      pen.font = `${font.size}px ${layout.font.family}`;
      return ax + pen.measureText(shown(text)).width;
    });
    layout.margin.r = Math.ceil(Math.max(...widths)) + 4;
  }

  // Shows the step that the slider selects; paper shows the last step.
  function takeStep(data, figure, place) {
    const control = place.parentElement.querySelector("input");
    const printing = "printing" in document.documentElement.dataset;
    const { title, ...cells } = figure.steps[printing ? figure.steps.length - 1 : control.value];
    Object.assign(data[0], cells);
    control.setAttribute("aria-valuetext", title);
    place.parentElement.querySelector("output").textContent = title;
  }

  // Shows the decisions at the threshold that the slider selects, and a dot for it on the curves.
  function takeThreshold(data, figure, place) {
    const part = place.closest("section");
    const control = part.querySelector("input");
    const [x, y] = figure.dots[control.value];
    Object.assign(data.at(-1), { x: [x], y: [y] });
    if (!figure.thresholds) return;
    const { title, cells } = figure.thresholds[control.value];
    control.setAttribute("aria-valuetext", title);
    part.querySelector("output").textContent = title;
    part.querySelectorAll("tbody td").forEach((cell, at) => (cell.textContent = cells[at]));
  }

  // Draws the figures of the page, or of a part of it. Folded figures are drawn when they are unfolded.
  function draw(part = document) {
    const style = getComputedStyle(document.documentElement);
    for (const [name, figure] of Object.entries(figures)) {
      const place = document.getElementById(`plot-${name}`);
      if (!part.contains(place) || place.closest("details:not([open])")) continue;
      const { data, layout } = themed({ data: figure.data, layout: figure.layout }, style);
      layout.width = place.clientWidth;
      if (figure.cells) fitCells(layout, figure, layout.width);
      if (figure.labelled) fitLabels(layout);
      if (figure.steps) takeStep(data, figure, place);
      if (figure.dots) takeThreshold(data, figure, place);
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

  document.addEventListener("toggle", (event) => event.target.open && draw(event.target), true);
  for (const control of document.querySelectorAll("input")) {
    control.addEventListener("input", () => draw(control.closest("figure, section")));
  }

  // Paper uses the light theme, with everything unfolded but the long tables of rows.
  let folded = [];
  window.addEventListener("beforeprint", () => {
    document.documentElement.dataset.printing = "";
    folded = [...document.querySelectorAll("details:not([open])")];
    folded = folded.filter((element) => element.matches(".steps") || !element.closest(".row"));
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
