// The page of a run: plots, sorting and filtering, and the steps of an episode when it is opened.
// Text from tasks and models reaches the document through textContent alone.
"use strict";

const data = JSON.parse(document.getElementById("charts").textContent);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const known = (name) => colour(name.replaceAll(" ", "-")) || colour("other");
const drawn = [];

function seconds(value) {
  if (!value) return "0";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 60) return `${+value.toFixed(1)} s`;
  const pair = (large, one, small, other) => (small ? `${large} ${one} ${small} ${other}` : `${large} ${one}`);
  if (value < 3600) return pair(Math.floor(value / 60), "min", Math.round(value % 60), "s");
  return pair(Math.floor(value / 3600), "h", Math.round((value % 3600) / 60), "min");
}

function draw(id, height, config) {
  const place = document.getElementById(id);
  if (height) place.style.height = `${height}px`;
  drawn.push(new Chart(place.querySelector("canvas"), config));
}

function axis(extra = {}) {
  return {
    grid: { color: colour("line"), drawTicks: false },
    border: { display: false },
    ...extra,
    ticks: { color: colour("dim"), padding: 6, ...extra.ticks },
  };
}

function options(extra) {
  return {
    animation: false, responsive: true, maintainAspectRatio: false,
    ...extra,
    plugins: {
      legend: { position: "bottom", labels: { color: colour("text"), boxWidth: 11, boxHeight: 11, padding: 14 } },
      ...extra.plugins,
    },
  };
}

const whole = { precision: 0 };
const bare = { grid: { display: false } };

function stacked(bars) {
  return Object.entries(bars.parts).map(([name, values]) => (
    { label: name, data: values, backgroundColor: known(name), borderRadius: 3, maxBarThickness: 24 }));
}

function drawOutcomes(bars) {
  draw("plot-outcomes", Math.max(230, bars.labels.length * 34 + 80), {
    type: "bar",
    data: { labels: bars.labels, datasets: stacked(bars) },
    options: options({
      indexAxis: "y",
      scales: { x: axis({ stacked: true, ticks: whole }), y: axis({ stacked: true, ...bare }) },
    }),
  });
}

function drawPhases(bars) {
  const height = Math.max(230, document.getElementById("plot-outcomes").clientHeight);
  draw("plot-phases", height, {
    type: "bar",
    data: {
      labels: bars.labels,
      datasets: [{ data: bars.parts.mean, backgroundColor: colour("accent"), borderRadius: 3, maxBarThickness: 24 }],
    },
    options: options({
      indexAxis: "y",
      scales: { x: axis({ ticks: { callback: seconds, maxTicksLimit: 6 } }), y: axis(bare) },
      plugins: { legend: { display: false }, tooltip: { callbacks: { label: (item) => seconds(item.parsed.x) } } },
    }),
  });
}

function drawHistogram(id, bars, title) {
  draw(id, 0, {
    type: "bar",
    data: {
      labels: bars.labels,
      datasets: stacked(bars).map((each) => ({ ...each, maxBarThickness: 60 })),
    },
    options: options({
      datasets: { bar: { categoryPercentage: 0.94, barPercentage: 0.94 } },
      scales: {
        x: axis({ stacked: true, ...bare, title: { display: true, text: title, color: colour("dim") } }),
        y: axis({ stacked: true, ticks: whole }),
      },
    }),
  });
}

function roundStep(length) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400];
  return steps.find((step) => length / step <= 8) ?? length / 8;
}

// A dashed line where a pause was cut out of the axis.
const cutLines = (cuts) => ({
  id: "cuts",
  afterDatasetsDraw({ ctx, chartArea, scales }) {
    ctx.save();
    ctx.strokeStyle = colour("text");
    ctx.setLineDash([4, 3]);
    for (const cut of cuts) {
      const x = Math.round(scales.x.getPixelForValue(cut)) + 0.5;
      ctx.beginPath();
      ctx.moveTo(x, chartArea.top);
      ctx.lineTo(x, chartArea.bottom);
      ctx.stroke();
    }
    ctx.restore();
  },
});

function drawTimeline(line) {
  if (!line.desktops.length) {
    document.getElementById("figure-timeline").hidden = true;
    return;
  }
  const states = [...new Set(line.spans.map((span) => span.state))];
  const remarks = [];
  if (line.left_out) remarks.push(`${line.left_out} more ${line.left_out === 1 ? "is" : "are"} not shown`);
  if (line.cuts.length) remarks.push("pauses between starts are cut out");
  document.getElementById("timeline-remarks").textContent = remarks.map((each) => ` · ${each}`).join("");
  draw("plot-timeline", Math.max(150, line.desktops.length * 24 + 90), {
    type: "bar",
    plugins: [cutLines(line.cuts)],
    data: {
      labels: line.desktops,
      datasets: states.map((state) => ({
        label: state, backgroundColor: known(state), borderWidth: 0, borderSkipped: false, grouped: false, barThickness: 14,
        data: line.spans.filter((span) => span.state === state).map((span) => ({ x: [span.start, span.end], y: span.desktop })),
      })),
    },
    options: options({
      indexAxis: "y",
      scales: {
        x: axis({
          type: "linear", min: 0, max: line.seconds,
          ticks: { callback: seconds, stepSize: roundStep(line.seconds), includeBounds: false, maxRotation: 0 },
        }),
        y: axis(bare),
      },
      plugins: {
        tooltip: {
          callbacks: {
            label: (item) => {
              const [start, end] = item.raw.x;
              return `${item.dataset.label} for ${seconds(end - start)}, from ${seconds(start)}`;
            },
          },
        },
      },
    }),
  });
}

// --- training ---

const titled = (text) => ({ display: true, text, color: colour("dim") });
const line = (label, points, name, extra = {}) => (
  { type: "line", label, data: points, borderColor: colour(name), backgroundColor: colour(name), borderWidth: 1.5, pointRadius: 0, ...extra });
const points = (xs, ys) => xs.map((x, place) => ({ x, y: ys[place] })).filter((point) => point.y !== null);

// The interval of each evaluation, as a whisker.
const whiskers = {
  id: "whiskers",
  afterDatasetsDraw({ ctx, scales, data: { datasets } }) {
    ctx.save();
    ctx.lineWidth = 1.5;
    for (const set of datasets.filter((each) => each.whiskers)) {
      ctx.strokeStyle = set.borderColor;
      for (const { x: step, low, high } of set.data.filter((point) => point.low !== null)) {
        const x = scales.x.getPixelForValue(step);
        const [top, bottom] = [scales.y.getPixelForValue(high), scales.y.getPixelForValue(low)];
        ctx.beginPath();
        for (const end of [top, bottom]) { ctx.moveTo(x - 4, end); ctx.lineTo(x + 4, end); }
        ctx.moveTo(x, top);
        ctx.lineTo(x, bottom);
        ctx.stroke();
      }
    }
    ctx.restore();
  },
};

function drawCurve(found) {
  const sets = [];
  if (found.steps.length) {
    const alone = found.over === 1;
    sets.push(line("training reward", points(found.steps, found.reward), "accent", alone ? {} : { borderColor: `${colour("accent")}55` }));
    if (!alone) sets.push(line(`mean of ${found.over} steps`, points(found.steps, found.smooth), "accent", { borderWidth: 2.5 }));
  }
  for (const [phase, name, style] of [["baseline", "dim", "rectRot"], ["eval", "success", "circle"]]) {
    const made = found.evaluations.filter((each) => each.phase === phase)
      .map((each) => ({ x: each.step, y: each.score, low: each.low, high: each.high, version: each.version }));
    if (made.length) sets.push(line(phase === "eval" ? "evaluation" : phase, made, name, { pointRadius: 4, pointStyle: style, whiskers: true, clip: 8 }));
  }
  const values = [...found.reward, ...found.evaluations.map((each) => each.score)];
  const rate = Math.min(...values) >= 0 && Math.max(...values) <= 1;
  draw("plot-curve", 320, {
    type: "line",
    plugins: [whiskers],
    data: { datasets: sets },
    options: options({
      interaction: { mode: "nearest", intersect: false },
      scales: {
        x: axis({ type: "linear", min: 0, ticks: whole, title: titled("step") }),
        y: axis(rate ? { min: 0, max: 1 } : {}),
      },
      plugins: {
        tooltip: {
          callbacks: {
            title: (items) => items.map((item) => `step ${item.parsed.x}`).slice(0, 1),
            label: (item) => {
              const { low, high, version } = item.raw;
              const between = low === undefined || low === null ? "" : ` (${low.toFixed(2)} to ${high.toFixed(2)})`;
              return `${item.dataset.label} ${item.parsed.y.toFixed(3)}${between}${version ? `, version ${version}` : ""}`;
            },
          },
        },
      },
    }),
  });
}

function drawLag(found) {
  const last = found.edges.at(-1);
  draw("plot-lag", 260, {
    type: "line",
    data: { datasets: [
      line("median", points(found.taken, found.lag), "accent", { pointRadius: 1.5 }),
      line("most", points(found.taken, found.lag_max), "dim", { borderWidth: 1 }),
    ] },
    options: options({
      scales: {
        x: axis({ type: "linear", min: 0, max: last, title: titled(found.unit), ticks: { includeBounds: false } }),
        y: axis({ min: 0, suggestedMax: 1, ticks: whole }),
      },
    }),
  });
}

const partNames = { generate: "wait for groups", hold: "wait for evaluation", train: "train", save: "save", refresh: "refresh" };
const partColours = { generate: "accent", hold: "failed", train: "partial", save: "recycling", refresh: "unscored" };

function drawParts(found) {
  draw("plot-parts", 260, {
    type: "bar",
    data: {
      labels: found.steps,
      datasets: Object.entries(found.seconds).filter(([, values]) => values.some(Boolean)).map(([part, values]) => (
        { label: partNames[part], data: values, backgroundColor: colour(partColours[part]) })),
    },
    options: options({
      datasets: { bar: { categoryPercentage: 1, barPercentage: found.steps.length > 100 ? 1 : 0.9 } },
      scales: {
        x: axis({ stacked: true, ...bare, title: titled("step"), ticks: { autoSkip: true, maxRotation: 0, maxTicksLimit: 12 } }),
        y: axis({ stacked: true }),
      },
      plugins: { tooltip: { callbacks: { label: (item) => `${item.dataset.label} ${seconds(item.parsed.y)}` } } },
    }),
  });
}

function drawBusy(found) {
  const middles = found.edges.slice(1).map((end, place) => (end + found.edges[place]) / 2);
  const colours = { train: "accent", eval: "success", baseline: "dim" };
  const order = ["train", "eval", "baseline"];
  const names = Object.keys(found.episodes).sort((one, other) => order.indexOf(one) - order.indexOf(other));
  const sets = names.map((name) => line(`episodes of ${name}`, points(middles, found.episodes[name]), colours[name] ?? "other", {
    fill: "stack", stack: "episodes", borderWidth: 0, order: 1, backgroundColor: `${colour(colours[name] ?? "other")}88`,
  }));
  const share = { yAxisID: "share", order: 0 };
  sets.push(line("trainer, %", points(middles, found.trainer.map((each) => 100 * each)), "partial", { ...share, stack: "trainer" }));
  if (found.desktops.length) {
    const leased = found.desktops.map((each) => (each === null ? null : 100 * each));
    sets.push(line("desktops leased, %", points(middles, leased), "failed", { ...share, stack: "desktops" }));
  }
  draw("plot-busy", 300, {
    type: "line",
    data: { datasets: sets },
    options: options({
      interaction: { mode: "index", intersect: false },
      scales: {
        x: axis({ type: "linear", min: 0, max: found.edges.at(-1), title: titled(found.unit), ticks: { includeBounds: false } }),
        y: axis({ stacked: true, min: 0, title: titled("episodes in flight") }),
        share: axis({ ...bare, position: "right", min: 0, max: 100, title: titled("% of the time") }),
      },
      plugins: { tooltip: { callbacks: {
        title: (items) => items.map((item) => `${item.parsed.x.toFixed(1)} ${found.unit}`).slice(0, 1),
        label: (item) => `${item.dataset.label}: ${item.parsed.y.toFixed(1)}`,
      } } },
    }),
  });
}

function drawTraining(found) {
  if (!found || !document.getElementById("plot-curve")) return;
  drawCurve(found);
  drawLag(found);
  drawParts(found);
  drawBusy(found);
}

function drawAll() {
  while (drawn.length) drawn.pop().destroy();
  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  Chart.defaults.font.size = 12.5;
  drawOutcomes(data.outcomes);
  drawPhases(data.phases);
  drawHistogram("plot-scores", data.scores, "score");
  drawHistogram("plot-steps", data.steps, "steps");
  drawTimeline(data.timeline);
  drawTraining(data.training);
}

// --- the table ---

const list = document.getElementById("rows");
const episodes = [...list.children];
let filter = "all";

function show() {
  const wanted = document.getElementById("search").value.trim().toLowerCase();
  let count = 0;
  for (const episode of episodes) {
    const { outcome, task, domain } = episode.dataset;
    const kind = outcome === "partial" ? "failed" : outcome;
    const hit = (filter === "all" || filter === kind) && `${task} ${domain}`.toLowerCase().includes(wanted);
    episode.hidden = !hit;
    count += hit;
  }
  document.getElementById("shown").textContent = `${count} of ${episodes.length}`;
}

const numeric = new Set(["sample", "score", "steps", "seconds"]);

function sort(button) {
  const key = button.dataset.sort;
  const down = button.getAttribute("aria-sort") === "ascending";
  for (const other of document.querySelectorAll("[data-sort]")) other.removeAttribute("aria-sort");
  button.setAttribute("aria-sort", down ? "descending" : "ascending");
  const sign = down ? -1 : 1;
  episodes.sort((one, other) => {
    const [a, b] = [one.dataset[key], other.dataset[key]];
    if (numeric.has(key) && (a === "" || b === "")) return (a === "") - (b === "") || one.dataset.number - other.dataset.number;
    return sign * (numeric.has(key) ? a - b : a.localeCompare(b)) || one.dataset.number - other.dataset.number;
  });
  list.append(...episodes);
}

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

// --- an episode ---

// A screen: what the page holds of it; large, the run's own file where that is to be had.
function picture(screen, what, large) {
  const image = element("img");
  const held = screen.data.startsWith("data:image/") ? screen.data : "";
  image.alt = what;
  if (large && screen.file) {
    image.addEventListener("error", () => { if (held && image.src !== held) image.src = held; });
    image.src = screen.file;
  } else {
    image.loading = "lazy";
    image.src = held || screen.file;
  }
  return image;
}

// A screen with a mark where each action of a step went.
function marked(screen, marks, what, large) {
  const frame = element("div", "frame");
  frame.append(picture(screen, what, large));
  marks.forEach((mark, number) => {
    const dot = element("span", "mark", marks.length > 1 ? String(number + 1) : "");
    dot.style.left = `${mark.x * 100}%`;
    dot.style.top = `${mark.y * 100}%`;
    dot.title = mark.what;
    frame.append(dot);
  });
  return frame;
}

function stepWords(step) {
  const body = element("div");
  if (step.thought) body.append(element("div", "said", step.thought));
  for (const action of step.actions) body.append(element("code", "", action));
  for (const result of step.results) body.append(element("div", "result", result));
  if (step.took) body.append(element("div", "took", step.took));
  return body;
}

// What there is to look at, one after the other: each step with what the agent saw, and how the screen was left.
function frames(view) {
  const found = view.steps.map((step) => (
    { name: String(step.index), screen: step.before, marks: step.marks, words: () => stepWords(step), what: `What the agent saw at step ${step.index}` }));
  const seen = view.steps.map((step) => step.screen).filter((place) => place !== null);
  if (seen.length) {
    const what = "The screen after the last step";
    found.push({ name: "end", screen: seen.at(-1), marks: [], words: () => element("div", "result", what), what });
  }
  return found;
}

function frameItem(frame, screens, show) {
  const item = element("li", frame.screen === null ? "" : "seen");
  item.append(element("span", "index", frame.name), frame.words());
  if (frame.screen !== null) {
    const button = element("button", "look");
    button.type = "button";
    button.append(marked(screens[frame.screen], frame.marks, frame.what, false));
    button.addEventListener("click", show);
    item.append(button);
  }
  return item;
}

function fileLine(view) {
  const line = element("p", "files");
  line.append(element("span", "dim", "files "));
  for (const file of view.files) {
    const link = element("a", "", file.name);
    link.href = file.address;
    link.target = "_blank";
    link.rel = "noopener noreferrer";
    line.append(link, " ");
  }
  line.append(element("span", "folder", view.folder));
  return line;
}

function film(view) {
  const file = view.files.find((each) => each.name === "recording.mp4");
  if (!file) return [];
  const video = element("video");
  video.controls = true;
  video.preload = "none";
  video.src = file.address;
  const part = element("details", "part");
  part.append(element("summary", "", "Recording"), video);
  return [part];
}

function talk(view) {
  if (!view.conversation.length) return [];
  const part = element("details", "part");
  part.append(element("summary", "", `Conversation, ${view.conversation.length} messages`));
  for (const said of view.conversation) {
    const line = element("div", "message");
    line.append(element("span", "role", said.role), element("div", "said", said.text));
    part.append(line);
  }
  return [part];
}

const player = document.getElementById("player");
let playing = null;

function play(all, screens, place) {
  playing = { all, screens, place };
  const frame = all[place];
  document.getElementById("place").textContent = frame.name === "end" ? "after the last step" : `step ${frame.name} · ${place + 1} of ${all.length}`;
  const screen = frame.screen === null ? null : screens[frame.screen];
  player.querySelector(".stage").replaceChildren(
    screen ? marked(screen, frame.marks, frame.what, true) : element("p", "dim", "This page has no screen of it."));
  player.querySelector(".words").replaceChildren(frame.words());
  const whole = document.getElementById("whole");
  whole.hidden = !(screen && screen.file);
  if (screen && screen.file) whole.href = screen.file;
  for (const button of player.querySelectorAll("[data-go]")) button.disabled = !all[place + Number(button.dataset.go)];
  if (!player.open) player.showModal();
}

function go(by) {
  const next = playing.place + by;
  if (playing.all[next]) play(playing.all, playing.screens, next);
}

function open(episode) {
  const block = episode.querySelector("script");
  if (!episode.open || !block) return;
  const view = JSON.parse(block.textContent);
  const all = frames(view);
  const steps = element("ol", "trail");
  all.forEach((frame, place) => steps.append(frameItem(frame, view.screens, () => play(all, view.screens, place))));
  episode.play = () => play(all, view.screens, 0);
  block.replaceWith(fileLine(view), ...film(view), ...talk(view), steps, ...(view.note ? [element("p", "dim", view.note)] : []));
}

player.addEventListener("keydown", (event) => {
  if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
    event.preventDefault();
    go(event.key === "ArrowRight" ? 1 : -1);
  }
});
player.addEventListener("click", (event) => { if (event.target === player) player.close(); });
for (const button of player.querySelectorAll("[data-go]")) button.addEventListener("click", () => go(Number(button.dataset.go)));
document.getElementById("close").addEventListener("click", () => player.close());
document.addEventListener("keydown", (event) => {
  if (event.key !== "ArrowRight" || player.open || !(event.target instanceof Element)) return;
  if (event.target.matches("input, video")) return;
  const episode = event.target.closest(".episode[open]") ?? list.querySelector(".episode[open]:not([hidden])");
  if (episode?.play) episode.play();
});

for (const button of document.querySelectorAll("[data-filter]")) {
  button.addEventListener("click", () => {
    filter = button.dataset.filter;
    for (const other of document.querySelectorAll("[data-filter]")) other.setAttribute("aria-pressed", String(other === button));
    show();
  });
}
for (const button of document.querySelectorAll("[data-sort]")) button.addEventListener("click", () => sort(button));
for (const episode of episodes) {
  episode.addEventListener("toggle", () => open(episode));
  open(episode); // a browser may remember which ones were open
}
document.getElementById("search").addEventListener("input", show);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);

show();
drawAll();
document.documentElement.dataset.ready = "yes";
