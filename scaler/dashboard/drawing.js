// What the scaler's page is made of: elements, numbers as people read them, plots. Knows nothing of
// the API. Texts get into the page as text, never as markup.
"use strict";

const WIDTH = 320, HEIGHT = 150, LEFT = 52, TOP = 10, BOTTOM = 20;
const SHORTEST_S = 60;
const COLOURS = 8; // of charts.css
const ROUND_S = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];

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
const rate = (rps) => (rps === null || rps === undefined ? "–" : `${number(rps)} /s`);
const clock = (at) => new Date(at * 1000).toLocaleTimeString([], {hour12: false});

// -- plots -------------------------------------------------------------------------------------

// A plot is {title, now, series: [{name, values, colour, faint}], stacked, bars, whole, limit: {value, name}, write};
// a series without a colour has one of its own. The past that it shows is at most so many seconds long.
function figure(plot, times, longest) {
  const made = element("figure");
  const caption = element("figcaption");
  caption.append(element("span", plot.title), element("b", plot.now));
  made.append(caption, drawing(plot, times, longest));
  const keys = element("p");
  plot.series.forEach((series, index) => {
    keys.append(element("span", series.name, {class: `key ${colourOf(series, index)}`}));
  });
  if (plot.limit) keys.append(element("span", plot.limit.name, {class: "key allowed"}));
  made.append(keys);
  return made;
}

const colourOf = ({colour, faint}, index) =>
  `c${(colour ?? index) % COLOURS}${faint ? " faint" : ""}`;

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
  svg.pointedAt = (clientX) => {
    const box = svg.getBoundingClientRect();
    return pointedAt(svg, (clientX - box.left) / box.width * WIDTH, x, plot, times);
  };
  axes(svg, highest, y, plot);
  if (times.length) clockAxis(svg, start, end, x);
  for (let index = stacks.length - 1; index >= 0; index--) {
    const colour = colourOf(plot.series[index], index);
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

// The numbers 1, 2 and 5 and their tens, so that there are at most five steps up to the highest.
function round(highest, whole) {
  const rough = Math.max(highest / 5, whole ? 1 : 0), power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= rough * (1 - 1e-9));
}

function axes(svg, highest, y, {write, whole}) {
  const step = round(highest, whole);
  for (let number_ = 0; number_ * step <= highest; number_++) {
    const value = number_ * step, at = y(value);
    svg.append(shape("line", {class: "grid", x1: LEFT, x2: WIDTH - 4, y1: at, y2: at}));
    svg.append(shape("text", {x: LEFT - 4, y: at + 4, "text-anchor": "end"}, write(value)));
  }
}

function clockAxis(svg, start, end, x) {
  const step = ROUND_S.find((seconds) => (end - start) / seconds <= 4) || ROUND_S.at(-1);
  const zone = new Date(end * 1000).getTimezoneOffset() * 60;
  const digits = step < 60 ? 8 : 5;
  for (let at = Math.ceil((start - zone) / step) * step + zone; at <= end; at += step) {
    const place = x(at);
    svg.append(shape("line", {class: "grid", x1: place, x2: place, y1: TOP, y2: HEIGHT - BOTTOM}));
    if (place < LEFT + 24 || place > WIDTH - 28) continue; // its text would be cut off
    const text = clock(at).slice(0, digits);
    svg.append(shape("text", {x: place, y: HEIGHT - 4, "text-anchor": "middle"}, text));
  }
}

// What a plot shows at a place: when that was, and the values of the nearest sample.
function pointedAt(svg, place, x, plot, times) {
  if (!times.length || place < LEFT) return "";
  const far = (index) => Math.abs(x(times[index]) - place);
  const nearest = times.reduce((best, _, index) => (far(index) < far(best) ? index : best), 0);
  const at = x(times[nearest]);
  svg.append(shape("line", {class: "cursor", x1: at, x2: at, y1: TOP, y2: HEIGHT - BOTTOM}));
  const said = plot.series.map(({name, values}) => `${name}: ${plot.write(values[nearest])}`);
  return [clock(times[nearest]), ...said].join("\n");
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
