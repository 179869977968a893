"use strict";
const $ = id => document.getElementById(id);
const make = (name, facts = {}) => Object.assign(document.createElement(name), facts);
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const pad = $("pad"), brush = pad.getContext("2d", { willReadFrequently: true });
const SIZE = 280, INK = "28,36,48";

const PATIENCE = 20_000;  // in milliseconds; the longest of the page's own burdens holds the loop for less
async function ask(method, path, body) {
  const options = { method, signal: AbortSignal.timeout(PATIENCE) };
  if (body !== undefined) Object.assign(options, {
    headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  let answer;
  try { answer = await fetch(path, options); } catch { /* nobody answers */ }
  // 502 and 504: a proxy says that nobody answers.
  away(!answer || answer.status === 502 || answer.status === 504);
  if (!answer) throw new Error("the service does not answer");
  if (!answer.ok) {
    throw Object.assign(new Error(answer.status + " " + answer.statusText), { status: answer.status });
  }
  return answer.json();
}
// Say that the service is away, until it is back; then ask what was not answered meanwhile.
function away(now) {
  if (now !== $("away").hidden) return;
  $("away").hidden = !now;
  if (now) return;
  offer(); look();
}
const say = text => { $("said").textContent = text; };

// -- the drawing ----------------------------------------------------------------------------------

// What is asked about: the pixels of an example, or none if they are to be taken from the drawing.
let example = null, drawn = false, turn = 0, pressed = false;
const pen = { x: SIZE / 2, y: SIZE / 2, down: false };

function stroke(x, y, begin) {
  brush.lineWidth = 26; brush.lineCap = brush.lineJoin = "round"; brush.strokeStyle = `rgb(${INK})`;
  if (begin) { brush.beginPath(); brush.moveTo(x, y); }
  brush.lineTo(x, y); brush.stroke();
  drawn = true; example = null;
}

function clear() {
  brush.fillStyle = "#fff"; brush.fillRect(0, 0, SIZE, SIZE);
  drawn = owed = false; example = null; turn++;
  $("digit").textContent = "\u2013";
  delete document.body.dataset.explained;
  bars.forEach(([fill, value]) => { fill.style.width = 0; value.textContent = "0 %"; });
  for (const label of $("labels").children) label.classList.remove("likely");
  for (const id of ["seen", "gradient", "integrated"]) paint($(id), new Array(64).fill(0));
  $("why").textContent = "Both are gradients of the likeliest digit\u2019s score.";
  say("");
}

function at(event) {
  const box = pad.getBoundingClientRect();
  return [(event.clientX - box.left) * SIZE / box.width, (event.clientY - box.top) * SIZE / box.height];
}
pad.onpointerdown = event => {
  if (!event.isPrimary || event.button) return;  // a second finger, or another button
  if (example) clear();
  pressed = true; pad.setPointerCapture(event.pointerId); stroke(...at(event), true);
};
pad.onpointermove = event => { if (pressed && event.isPrimary) { stroke(...at(event)); glance(); } };
pad.onpointerup = pad.onpointercancel = event => { if (pressed && event.isPrimary) { pressed = false; look(); } };

function showPen() {
  Object.assign($("pen").style, { left: 100 * pen.x / SIZE + "%", top: 100 * pen.y / SIZE + "%" });
  $("pen").classList.toggle("down", pen.down);
  $("pen").hidden = document.activeElement !== pad;
}
pad.onfocus = () => { showPen(); $("pen").hidden = !pad.matches(":focus-visible"); };
pad.onblur = () => { pen.down = false; showPen(); };
pad.onkeydown = event => {
  const step = event.shiftKey ? 28 : 10;
  const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
  if (moves[event.key]) {
    const inside = value => Math.min(SIZE - 14, Math.max(14, value));
    pen.x = inside(pen.x + moves[event.key][0]); pen.y = inside(pen.y + moves[event.key][1]);
    if (pen.down) { stroke(pen.x, pen.y); glance(); }
  } else if (event.key === " ") {
    if (example) clear();
    pen.down = !pen.down;
    if (pen.down) { stroke(pen.x, pen.y, true); say("the pen is down"); } else look();
  } else if (event.key === "Delete" || event.key === "Backspace") {
    pen.down = false; clear(); say("cleared");
  } else return;
  event.preventDefault(); showPen();
};

// What was drawn, cut out, centred and made 8x8, as the digits that were learnt from are.
function pixels() {
  if (example) return example;
  if (!drawn) return null;
  const data = brush.getImageData(0, 0, SIZE, SIZE).data;
  const ink = (x, y) => 1 - data[4 * (SIZE * y + x)] / 255;
  let left = SIZE, right = 0, top = SIZE, bottom = 0;
  for (let y = 0; y < SIZE; y++) for (let x = 0; x < SIZE; x++) if (ink(x, y) > 0.5) {
    left = Math.min(left, x); right = Math.max(right, x);
    top = Math.min(top, y); bottom = Math.max(bottom, y);
  }
  if (left > right) return null;
  const side = Math.max(bottom - top + 1, (right - left + 1) * 8 / 6);
  const x0 = (left + right + 1 - side) / 2, y0 = (top + bottom + 1 - side) / 2, cell = side / 8;
  const image = [];
  image.cut = [x0, y0, side, side];
  for (let row = 0; row < 8; row++) for (let column = 0; column < 8; column++) {
    let sum = 0, count = 0;
    for (let y = y0 + row * cell; y < y0 + (row + 1) * cell; y++)
      for (let x = x0 + column * cell; x < x0 + (column + 1) * cell; x++) {
        const i = Math.round(x), j = Math.round(y);
        count++; if (i >= 0 && j >= 0 && i < SIZE && j < SIZE) sum += ink(i, j);
      }
    image.push(Math.min(1, Math.max(0, sum / count)));
  }
  return image;
}

// What each pixel is or does, with the drawing over it if there is one.
function paint(canvas, values, image = null, positive = colour("--for")) {
  const brush = canvas.getContext("2d"), most = Math.max(...values.map(Math.abs)) || 1;
  const size = canvas.width, cell = size / 8, negative = colour("--against");
  brush.fillStyle = "#fff"; brush.fillRect(0, 0, size, size);
  values.forEach((value, place) => {
    brush.fillStyle = `rgba(${value > 0 ? positive : negative},${0.85 * Math.abs(value) / most})`;
    brush.fillRect(place % 8 * cell, Math.floor(place / 8) * cell, cell, cell);
  });
  if (!image) return;
  brush.save(); brush.globalCompositeOperation = "multiply"; brush.globalAlpha = 0.28;
  brush.drawImage(pad, ...image.cut, 0, 0, size, size);
  brush.restore();
}

// -- prediction and explanation -------------------------------------------------------------------

const bars = [];
for (let d = 0; d < 10; d++) {
  const fill = make("i"), value = make("span"), bar = make("div", { className: "bar" });
  bar.append(fill);
  $("bars").append(make("span", { textContent: d }), bar, value);
  bars.push([fill, value]);
  const label = make("button", { textContent: d, onclick: () => correct(d) });
  label.dataset.digit = d;
  $("labels").append(label);
}

function show(answer, image) {
  $("digit").textContent = answer.digit;
  answer.probabilities.forEach((p, d) => {
    bars[d][0].style.width = 100 * p + "%"; bars[d][1].textContent = Math.round(100 * p) + " %";
    $("labels").children[d].classList.toggle("likely", d === answer.digit);
  });
  paint($("seen"), image, null, INK);
}

// What it is so far, while it is drawn: one question at a time.
let glancing = false;
async function glance() {
  const image = glancing ? null : pixels(), mine = turn;
  if (!image) return;
  glancing = true;
  try {
    const answer = await ask("POST", "predict", { pixels: image });
    if (mine === turn) show(answer, image);
  } catch { /* the whole drawing is asked for when it is there */ }
  glancing = false;
}

// Whether who has drawn still has to be told of an answer.
let owed = false;
// Predict and explain; after new weights were published, without a word of its own.
async function look(silent = false) {
  const image = pixels(), mine = ++turn;
  if (!image) return;
  owed ||= !silent;
  const slow = setTimeout(() => { if (mine === turn && owed) say("no answer yet"); }, 1000);
  try {
    const asked = performance.now(), answer = await ask("POST", "predict", { pixels: image });
    const took = (performance.now() - asked).toFixed(0);
    clearTimeout(slow);
    if (mine !== turn) return;
    show(answer, image);
    document.body.dataset.step = answer.step;
    if (owed) say(`answered in ${took} ms with the weights of step ${answer.step}`);
    owed = false;
    const why = await ask("POST", "explain", { pixels: image, digit: answer.digit });
    if (mine !== turn) return;
    paint($("gradient"), why.gradient, image); paint($("integrated"), why.integrated, image);
    $("why").textContent = `Both are gradients of the score of ${answer.digit}.`;
    document.body.dataset.explained = answer.digit;
  } catch (error) { if (mine === turn) say("not answered: " + error.message); }
  clearTimeout(slow);
}

$("clear").onclick = clear;
$("adapt").onclick = async () => {
  const image = pixels(), mine = turn;
  if (!image) { say("draw something first"); return; }
  try {
    const answer = await ask("POST", "adapt", { pixels: image, within_ms: 200 });
    if (mine !== turn) return;
    show(answer, image);
    say(answer.adapted ? "adapted to this drawing" : "no time left to adapt");
  } catch (error) { if (mine === turn) say("not adapted: " + error.message); }
};

let offered = false;
async function offer() {
  if (offered) return;
  let examples;
  try { examples = await ask("GET", "examples"); } catch { return; }  // asked again when it is back
  if (offered) return;
  offered = true;
  for (const each of examples) {
    const small = make("canvas", { width: 64, height: 64 });
    const button = make("button", { onclick: () => take(each.pixels) });
    button.setAttribute("aria-label", `example: a ${each.digit}`);
    button.dataset.example = each.digit;
    small.setAttribute("aria-hidden", "true");
    paint(small, each.pixels, null, INK);
    button.append(small); $("examples").append(button);
  }
}
function take(values) {
  clear();
  values.forEach((value, place) => {
    brush.fillStyle = `rgba(${INK},${value})`;
    brush.fillRect(place % 8 * 35, Math.floor(place / 8) * 35, 35, 35);
  });
  example = Object.assign([...values], { cut: [0, 0, SIZE, SIZE] }); drawn = true;
  look();
}

// -- corrections ----------------------------------------------------------------------------------

const corrections = new Map();
function list({ name, digit, pixels }) {
  if (corrections.has(name)) return;
  const item = make("li"), small = make("canvas", { width: 64, height: 64 }), text = make("span");
  const undo = make("button", { textContent: "Undo", onclick: () => forget(name) });
  small.setAttribute("role", "img"); small.setAttribute("aria-label", `drawing of a ${digit}`);
  undo.setAttribute("aria-label", `Undo that it is a ${digit}`);
  paint(small, pixels, null, INK);
  item.append(small, text, undo); $("corrected").prepend(item);
  corrections.set(name, { digit, item, text, undo, state: "" });
  $("none").hidden = true;
  state(name, "waits"); settle(name);
}
function state(name, what) {
  const each = corrections.get(name);
  if (!each || each.state === what) return;
  each.state = what;
  each.text.textContent = `a ${each.digit}: ${what}`;
  each.item.dataset.state = what;
  each.undo.disabled = what !== "waits" && what !== "learnt";
}
async function correct(digit) {
  const image = pixels();
  if (!image) { say("draw something first"); return; }
  try {
    const { name } = await ask("POST", "correct", { pixels: image, digit });
    list({ name, digit, pixels: image });
    owed = false;
    say(`learning that this is a ${digit}`);
  } catch (error) { say("not learnt: " + error.message); }
}
async function forget(name) {
  const each = corrections.get(name), before = each.before = each.state;
  state(name, "is being undone");
  try { await ask("DELETE", "corrections/" + name); }
  catch (error) {
    state(name, error.status === 404 ? FOR_GOOD : before); say("not undone: " + error.message);
  }
}
// The names of the corrections in the weights that can be undone, and of those that were undone.
let learnt = [], undone = [];
const FOR_GOOD = "learnt for good";
function settle(name) {
  const { state: now, before } = corrections.get(name), undoing = now === "is being undone";
  if (undone.includes(name)) state(name, "undone");
  else if (learnt.includes(name)) { if (!undoing) state(name, "learnt"); }
  else if (now === "learnt" || undoing && before === "learnt") state(name, FOR_GOOD);
}

// -- charts ---------------------------------------------------------------------------------------

// A grid, whose top is the largest value or more, without figures if there is no value; returns where
// things are.
function grid(canvas, values, least) {
  const brush = canvas.getContext("2d"), left = 84;
  // Two dots for each of the page's, so that nothing is stretched; this clears it, too.
  const width = canvas.width = 2 * canvas.clientWidth, height = canvas.height = 2 * canvas.clientHeight;
  const most = Math.max(least, ...values), y = value => height - 16 - (height - 44) * value / most;
  brush.strokeStyle = colour("--line"); brush.fillStyle = colour("--dim");
  brush.font = "22px system-ui"; brush.lineWidth = 1;
  for (const part of [0, 0.5, 1]) {
    brush.beginPath(); brush.moveTo(left, y(most * part)); brush.lineTo(width - 12, y(most * part));
    brush.stroke();
    if (values.length) brush.fillText((most * part).toFixed(most < 10 ? 2 : 0), 8, y(most * part) + 7);
  }
  return { brush, y, left, right: width - 12, middle: y(most / 2) - 14 };
}
function line(canvas, values, least, stroke, empty) {
  const { brush, y, left, right, middle } = grid(canvas, values, least);
  if (!values.length) { brush.fillText(empty, left + 16, middle); return; }
  brush.strokeStyle = stroke; brush.lineWidth = 4; brush.lineJoin = "round"; brush.beginPath();
  const x = n => left + n * (right - left) / Math.max(1, values.length - 1);
  values.forEach((value, n) => brush.lineTo(x(n), y(value)));
  if (values.length === 1) brush.lineTo(right, y(values[0]));
  brush.stroke();
}
const say_of = (canvas, text) => canvas.setAttribute("aria-label", text);

const losses = [], lags = [];
function plotLosses() {
  line($("loss"), losses, 0.1, colour("--accent"), "nothing was learnt yet");
  say_of($("loss"), losses.length ? `Loss of the last ${losses.length} steps: now ${losses.at(-1).toFixed(3)}`
                                  : "Loss of each step of learning: none yet");
}
function plotLags() {
  line($("lag"), lags, 5, colour("--calm"), "a moment");
  if (lags.length) say_of($("lag"), `Delay of the event loop: ${lags.at(-1).toFixed(1)} ms in the last second`);
}

// -- what happens ---------------------------------------------------------------------------------

function watch() {
  const events = new EventSource("events");
  events.onerror = () => {
    watching(false);
    // It tries again by itself if nobody answers, and not if the answer is an error.
    if (events.readyState === EventSource.CLOSED) setTimeout(watch, 1000);
  };
  events.onmessage = happened;
}
// Whether the page hears what is learnt.
function watching(now) {
  if (now) document.body.dataset.watching = "yes"; else delete document.body.dataset.watching;
  $("deaf").hidden = now;
}
function happened(message) {
  const event = JSON.parse(message.data);
  $("step").textContent = event.step; watching(true);
  if ("waiting" in event) $("waiting").textContent = event.waiting;
  if ("losses" in event) losses.splice(0, losses.length, ...event.losses);
  if ("loss" in event) losses.push(event.loss);
  if (losses.length > 240) losses.shift();
  if ("loss" in event || "losses" in event) plotLosses();
  if ("learnt" in event) ({ learnt, undone } = event);
  (event.corrections || []).forEach(list);
  if ("learnt" in event) [...corrections.keys()].forEach(settle);
  if (event.burden === false) $("manners").hidden = true;
  if (event.published) { document.body.dataset.published = event.step; look(true); }
}

const names = { passes: "passes", in_flight: "in flight", slices: "slices on the loop",
  segments: "segments in threads", loop_held: "the engine held the loop, in all",
  longest_hold: "at a time, at most", longest_queue_wait: "longest wait for a turn",
  collections: "collector runs" };
let looking = false;  // a second look would be answered together with the first, by the same
async function picture() {
  if (looking) return;
  looking = true;
  try {
    const engine = await ask("GET", "engine");
    lags.push(1e3 * engine.lag); if (lags.length > 60) lags.shift();
    plotLags();
    $("engine").replaceChildren(...Object.entries(names).flatMap(([key, name]) => {
      const value = /longest|held/.test(key) ? (1e3 * engine[key]).toFixed(2) + " ms" : engine[key];
      return [make("dt", { textContent: name }), make("dd", { textContent: value })];
    }));
  } catch { /* the service is away; the next look may find it again */ }
  looking = false;
}

// -- requests beside training ---------------------------------------------------------------------

const SECONDS = 10, PAUSE = 50, titles = { none: "none", awaited: "awaited", blocking: "blocking" };
const manner = () => document.querySelector("[name=manner]:checked").value;
const sent = [];  // [manner, ms], the latest last
function plotLatencies() {
  const shown = sent.slice(-600);
  const { brush, y, left, right, middle } = grid($("latency"), shown.map(each => each[1]), 5);
  if (!shown.length) brush.fillText("nothing was sent yet", left + 16, middle);
  const colours = { none: colour("--dim"), awaited: colour("--accent"), blocking: colour("--warn") };
  shown.forEach(([how, ms], n) => {
    brush.fillStyle = colours[how];
    brush.fillRect(left + n * (right - left) / Math.max(200, shown.length), y(ms) - 4, 7, 7);
  });
  $("latencies").replaceChildren(...Object.keys(titles).flatMap(how => {
    const times = sent.filter(each => each[0] === how).map(each => each[1]).sort((a, b) => a - b);
    if (!times.length) return [];
    const row = make("tr"), within = part => times[Math.ceil(part * times.length) - 1].toFixed(1) + " ms";
    row.dataset.manner = how;
    row.append(...[titles[how], times.length, within(0.5), within(0.99)].map(text => make("td", { textContent: text })));
    return [row];
  }));
  if (sent.length) say_of($("latency"), `Latency of ${sent.length} requests; the table below has the figures`);
}
async function request(image) {
  const how = manner(), asked = performance.now();
  try { await ask("POST", "predict", { pixels: image }); } catch { return; }
  if (how === manner()) { sent.push([how, performance.now() - asked]); plotLatencies(); }
}
const burden = () => manner() === "none" ? ask("DELETE", "burden")
                                         : ask("PUT", "burden", { manner: manner(), seconds: SECONDS + 5 });
let sending = false;
$("load").onsubmit = async event => {
  event.preventDefault();
  if (sending) return;
  sending = true; $("send").disabled = true;
  const image = pixels() || new Array(64).fill(0.5), allowed = !$("manners").hidden;
  try {
    if (allowed) await burden();
    const end = performance.now() + 1e3 * SECONDS;
    while (performance.now() < end) {
      request(image);
      await new Promise(resume => setTimeout(resume, PAUSE));
    }
    if (allowed) await ask("DELETE", "burden");
  } catch (error) { say("not sent: " + error.message); }
  sending = false; $("send").disabled = false;
};
$("manners").onchange = () => { if (sending) burden(); };

function plot() { plotLosses(); plotLags(); plotLatencies(); }
addEventListener("resize", plot);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", plot);
clear(); plot(); watch(); picture(); setInterval(picture, 1000); offer();
