// What the scaler's page is made of: elements, numbers as people read them, plots. Knows nothing of
// the API. Texts get into the page as text, never as markup.
"use strict";

const WIDTH = 320, HEIGHT = 150, LEFT = 52, TOP = 10, BOTTOM = 20;
const SHORTEST_S = 60;
const COLOURS = 6;

// -- making elements ---------------------------------------------------------------------------

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function shape(tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function row(cells) {
  const made = element("tr");
  for (const cell of cells) {
    const td = element("td");
    td.append(cell);
    made.append(td);
  }
  return made;
}

const list = (parent, texts) => parent.replaceChildren(...texts.map((text) => element("li", text)));

// -- numbers as people read them ---------------------------------------------------------------

function number(value) {
  if (value === null || value === undefined) return "–";
  if (value !== 0 && Math.abs(value) < 0.01) return value.toExponential(1);
  const digits = Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0;
  return String(Number(value.toFixed(digits)));
}

const duration = (s) =>
  s === null || s === undefined ? "–" : s < 1 ? `${number(s * 1000)} ms` : `${number(s)} s`;
const percent = (ratio) =>
  ratio === null || ratio === undefined ? "–" : `${number(ratio * 100)} %`;
const clock = (at) => new Date(at * 1000).toLocaleTimeString([], {hour12: false});

// -- plots -------------------------------------------------------------------------------------

// A plot is {title, now, series: [{name, values}], stacked, bars, limit: {value, name}, write}; the
// past that it shows is at most so many seconds long.
function figure(plot, times, longest) {
  const made = element("figure");
  const caption = element("figcaption");
  caption.append(element("span", plot.title), element("b", plot.now));
  made.append(caption, drawing(plot, times, longest));
  const keys = element("p");
  plot.series.forEach((series, index) => {
    keys.append(element("span", series.name, {class: `key c${index % COLOURS}`}));
  });
  if (plot.limit) keys.append(element("span", plot.limit.name, {class: "key allowed"}));
  made.append(keys);
  return made;
}

function drawing(plot, times, longest) {
  const end = times.length ? times[times.length - 1] : 0;
  const length = Math.min(longest, Math.max(SHORTEST_S, end - (times[0] ?? end)));
  const start = end - length;
  const stacks = plot.stacked ? stacked(plot.series) : plot.series.map((each) => each.values);
  const limit = plot.limit ? plot.limit.value : 0;
  const highest = Math.max(0, ...stacks.flat().filter((v) => v !== null), limit) * 1.1 || 1;
  const x = (at) => LEFT + (WIDTH - LEFT - 4) * (at - start) / length;
  const y = (value) => HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / highest;
  const summary = `${plot.title}: ${plot.now}`;
  const svg = shape("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": summary});
  axes(svg, highest, y, length, plot.write);
  for (let index = stacks.length - 1; index >= 0; index--) {
    const colour = `c${index % COLOURS}`;
    if (plot.bars) bars(svg, stacks[index], times, x, y, colour);
    else if (plot.stacked) area(svg, stacks[index], stacks[index - 1], times, x, y, colour);
    else line(svg, stacks[index], times, x, y, colour);
  }
  if (plot.limit) {
    const at = y(plot.limit.value);
    svg.append(shape("line", {class: "limit", x1: LEFT, x2: WIDTH - 4, y1: at, y2: at}));
  }
  return svg;
}

function axes(svg, highest, y, length, write) {
  for (const share of [0, 0.5, 1]) {
    const value = highest / 1.1 * share, at = y(value);
    svg.append(shape("line", {class: "grid", x1: LEFT, x2: WIDTH - 4, y1: at, y2: at}));
    svg.append(shape("text", {x: LEFT - 4, y: at + 4, "text-anchor": "end"}, write(value)));
  }
  const ago = length < 120 ? `${Math.round(length)} s ago` : `${Math.round(length / 60)} min ago`;
  svg.append(shape("text", {x: LEFT, y: HEIGHT - 4}, ago));
  svg.append(shape("text", {x: WIDTH - 4, y: HEIGHT - 4, "text-anchor": "end"}, "now"));
}

function line(svg, values, times, x, y, colour) {
  let path = "", pen = "M";
  values.forEach((value, index) => {
    if (value === null) { pen = "M"; return; }
    path += `${pen}${x(times[index]).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = "L";
  });
  svg.append(shape("path", {class: `series ${colour}`, d: path}));
}

function area(svg, upper, lower, times, x, y, colour) {
  if (!times.length) return;
  const edge = (values, at) => `${x(times[at]).toFixed(1)} ${y(values ? values[at] : 0).toFixed(1)}`;
  const there = times.map((_, at) => edge(upper, at));
  const back = times.map((_, at) => edge(lower, times.length - 1 - at));
  svg.append(shape("path", {class: `area ${colour}`, d: `M${there.join("L")}L${back.join("L")}Z`}));
}

function bars(svg, values, times, x, y, colour) {
  values.forEach((value, index) => {
    if (!value) return;
    const at = x(times[index]);
    svg.append(shape("line", {class: `bar ${colour}`, x1: at, x2: at, y1: y(0), y2: y(value)}));
  });
}

function stacked(series) {
  let below = [];
  return series.map(({values}) => (below = values.map((value, at) => value + (below[at] || 0))));
}
