// The scaler's page: asks the API once a second and shows what it says. Whatever comes from there
// (names are users') gets into the page as text, never as markup.
"use strict";

const KEY = "carpool-token";
const POLL_MS = 1000;
const WIDTH = 320, HEIGHT = 150, LEFT = 52, TOP = 10, BOTTOM = 20;
const SHORTEST_S = 60;
const COLOURS = 6;

const byId = (id) => document.getElementById(id);
let token = sessionStorage.getItem(KEY) || "";
let chosen = named();
let past = {name: "", last: 0, samples: []};

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

// A plot is {title, now, series: [{name, values}], stacked, bars, limit: {value, name}, write}.
function figure(plot, times) {
  const made = element("figure");
  const caption = element("figcaption");
  caption.append(element("span", plot.title), element("b", plot.now));
  made.append(caption, drawing(plot, times));
  const keys = element("p");
  plot.series.forEach((series, index) => {
    keys.append(element("span", series.name, {class: `key c${index % COLOURS}`}));
  });
  if (plot.limit) keys.append(element("span", plot.limit.name, {class: "key allowed"}));
  made.append(keys);
  return made;
}

function drawing(plot, times) {
  const end = times.length ? times[times.length - 1] : 0;
  const length = Math.min(past.kept * past.every, Math.max(SHORTEST_S, end - (times[0] ?? end)));
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

// -- one function ------------------------------------------------------------------------------

function plotsOf(samples, found) {
  const of = (name) => samples.map((sample) => sample[name]);
  const last = samples[samples.length - 1] || {classes: {}};
  const kinds = [...new Set(samples.flatMap((sample) => Object.keys(sample.classes)))].sort();
  const count = (kind, which) =>
    samples.map(({classes}) => (classes[kind] ? classes[kind][which] : 0));
  const seen = (series) => series.filter(({values}) => values.some((value) => value));
  const total = (which) => samples.reduce((sum, sample) => sum + sample[which], 0);
  const largest = Math.max(0, ...(found.plan ? found.plan.classes.map((c) => c.batch_size) : []));
  const ready = Object.values(last.classes).reduce((sum, [up]) => sum + up, 0);
  const allowed = 1 - past.percentile;
  return [
    {title: "Rate", now: `${number(last.rate_rps)} /s`, write: number,
      series: [{name: "requests a second", values: of("rate_rps")},
        {name: "waiting", values: of("queued")}]},
    {title: "Instances by class", now: `${ready} ready`, write: number, stacked: true,
      series: seen(kinds.flatMap((kind) => [{name: kind, values: count(kind, 0)},
        {name: `${kind}, loading`, values: count(kind, 1)}]))},
    {title: "Batch size", now: number(last.mean_batch), write: number,
      series: [{name: "requests in a batch, mean", values: of("mean_batch")}],
      limit: largest ? {value: largest, name: `largest planned, ${largest}`} : null},
    {title: "Latency", now: `p99 ${duration(last.p99_s)}`, write: duration,
      series: [{name: "p50", values: of("p50_s")}, {name: "p99", values: of("p99_s")}],
      limit: past.slo ? {value: past.slo, name: `objective, ${duration(past.slo)}`} : null},
    {title: "Missed objectives", now: percent(last.miss_ratio), write: percent,
      series: [{name: "late, failed, expired or refused", values: of("miss_ratio")}],
      limit: past.slo ? {value: allowed, name: `allowed, ${percent(allowed)}`} : null},
    past.priced
      ? {title: "Cost", now: `${number(last.cost_per_hour)} an hour`, write: number,
        series: [{name: "at the rate of each second", values: of("cost_per_hour")}]}
      : {title: "Resources held", now: `cores: ${number(last.cores)}`, write: number,
        series: [{name: "cores", values: of("cores")},
          ...seen([{name: "percent of a GPU", values: of("gpu_percent")}])]},
    {title: "Cold starts", now: `${total("waits")} waited for`, write: number, bars: true,
      series: [{name: "instances started", values: of("starts")},
        {name: "waited for", values: of("waits")}]},
  ];
}

function showFunction(found) {
  const samples = past.samples;
  const times = samples.map((sample) => sample.at_s);
  byId("function").hidden = false;
  byId("name").textContent = found.name;
  byId("plots").replaceChildren(...plotsOf(samples, found).map((plot) => figure(plot, times)));
  const plan = found.plan;
  byId("plan-title").textContent = plan ? `Plan ${plan.version} of ${plan.policy}` : "No plan yet";
  byId("plan").tBodies[0].replaceChildren(...(plan ? plan.classes : []).map((kind) => row([
    kind.name, number(kind.cpu), kind.gpu ? `${number(kind.gpu)} %` : "–", String(kind.batch_size),
    String(kind.replicas), duration(kind.exec_s)])));
  list(byId("explain"), [...(plan ? plan.explain : []), ...found.remarks]);
  byId("decisions").replaceChildren(...[...found.decisions].reverse().map((decision) => {
    const item = element("li");
    item.append(element("time", clock(decision.at_s)), decision.text);
    return item;
  }));
  showShadow(plan);
}

function showShadow(plan) {
  const {shadow} = past;
  const box = byId("shadow");
  box.hidden = !shadow;
  if (!shadow) return;
  const held = (who, amounts) => row([who, number(amounts.core_s), number(amounts.gpu_percent_s),
    past.priced ? number(amounts.cost) : "–", duration(amounts.short_s)]);
  box.querySelector("tbody").replaceChildren(
    held(`${plan ? plan.policy : "what runs"}, in charge`, shadow.live),
    held(`${shadow.policy}, not followed`, shadow.shadow));
  const would = shadow.plan ? shadow.plan.classes.map((kind) =>
    `${kind.replicas} × ${kind.name}: ${number(kind.cpu)} cores, ${number(kind.gpu)} % of a GPU, ` +
    `batches of ${kind.batch_size}`) : [];
  list(box.querySelector("ul"), would);
}

// -- all functions -----------------------------------------------------------------------------

function showFunctions({functions, trouble}) {
  list(byId("troubles"), [...(trouble ? [trouble] : []),
    ...functions.flatMap((each) => each.notes.map((note) => `${each.name}: ${note}`))]);
  const body = byId("functions").tBodies[0];
  const focused = document.activeElement && document.activeElement.dataset.name;
  body.replaceChildren(...functions.map((each) => {
    const button = element("button", each.name, {type: "button", "data-name": each.name});
    button.addEventListener("click", () => choose(each.name));
    const made = row([button, each.policy || "–", `${number(each.rate_rps)} /s`,
      String(each.queued), String(each.planned), String(each.ready), String(each.loading),
      each.unplaced_rps ? `${number(each.unplaced_rps)} /s` : "–"]);
    if (each.name === chosen) made.setAttribute("aria-current", "true");
    if (each.notes.length) made.classList.add("bad");
    return made;
  }));
  if (focused) {
    const again = [...body.querySelectorAll("button")].find((b) => b.dataset.name === focused);
    if (again) again.focus();
  }
}

function choose(name) {
  chosen = name;
  location.hash = encodeURIComponent(name);
  poll();
}

function named() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return ""; // somebody has typed it
  }
}

// -- asking ------------------------------------------------------------------------------------

class Refused extends Error {}

async function ask(path) {
  const headers = token ? {authorization: `Bearer ${token}`} : {};
  const answer = await fetch(path, {headers, cache: "no-store"});
  if (answer.status === 401) throw new Refused();
  const document_ = await answer.json();
  if (!answer.ok) throw new Error(document_.error || `status ${answer.status}`);
  return document_;
}

async function remember(name) {
  if (past.name !== name) past = {name, last: 0, samples: []};
  const mine = past;
  const path = `v1/history/${encodeURIComponent(name)}`;
  let found = await ask(`${path}?after=${mine.last}`);
  if (found.last < mine.last) { // the scaler has started again
    mine.samples = [];
    found = await ask(`${path}?after=0`);
  }
  mine.samples = [...mine.samples, ...found.samples.filter((s) => s.number > mine.last ||
    !mine.samples.length)].slice(-found.kept);
  Object.assign(mine, {last: found.last, slo: found.slo_s, percentile: found.percentile,
    priced: found.priced, every: found.every_s, kept: found.kept, shadow: found.shadow});
}

function state(text, bad) {
  const place = byId("state");
  if (place.textContent !== text) place.textContent = text;
  place.classList.toggle("bad", bad);
}

async function look() {
  const all = await ask("v1/functions");
  byId("login").hidden = true;
  byId("main").hidden = false;
  if (!all.functions.some((each) => each.name === chosen)) {
    chosen = all.functions.length ? all.functions[0].name : "";
  }
  showFunctions(all);
  byId("function").hidden = !chosen;
  if (chosen) {
    const name = chosen;
    const [found] = await Promise.all([ask(`v1/functions/${encodeURIComponent(name)}`),
      remember(name)]);
    if (name === chosen) showFunction(found);
  }
  state(all.functions.length ? "live" : "no function is scaled", false);
}

let asking = false, again = false, timer = 0;

async function poll() {
  if (asking) { again = true; return; }
  clearTimeout(timer);
  asking = true;
  try {
    await look();
  } catch (error) {
    if (error instanceof Refused) { askToken(); asking = false; return; }
    state(`the scaler does not answer (${error.message}); trying again`, true);
  }
  asking = false;
  timer = setTimeout(poll, again ? 0 : POLL_MS);
  again = false;
}

function askToken() {
  state(token ? "this is not the scaler's token" : "the scaler asks for its token", Boolean(token));
  token = "";
  sessionStorage.removeItem(KEY);
  byId("main").hidden = true;
  byId("login").hidden = false;
  byId("token").focus();
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  sessionStorage.setItem(KEY, token);
  byId("token").value = "";
  poll();
});
addEventListener("hashchange", () => {
  chosen = named();
  poll();
});
poll();
