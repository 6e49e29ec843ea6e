"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const several = data.runs.length > 1;
  const config = {
    responsive: true,
    displaylogo: false,
    modeBarButtons: [["toImage", "resetScale2d"]],
    doubleClick: "reset",
    // Without these two, a drag on a phone scrolls nothing and the wheel is caught by every figure.
    scrollZoom: false,
    showTips: false,
  };

  // ---- colours come from the style sheet, so figures and text always agree
  const color = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();
  const faded = (hex, alpha) => {
    const part = (at) => parseInt(hex.slice(at, at + 2), 16);
    return `rgba(${part(1)}, ${part(3)}, ${part(5)}, ${alpha})`;
  };
  const dash = (run) => (run.dash ? run.dash.split(" ").map((n) => n + "px").join(",") : "solid");
  // Plotly reads a little HTML and its own %{...} in labels; names of runs are text.
  const text = (value) =>
    String(value).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/%\{/g, "% {");

  // ---- the horizontal axis
  const longest = Math.max(0, ...data.runs.map((run) => run.mean.elapsed_s.at(-1) ?? 0));
  const [unit, seconds] = longest < 180 ? ["s", 1] : longest < 10800 ? ["min", 60] : ["h", 3600];
  const axes = {
    samples: { title: "samples", format: "~s" },
    step: { title: "steps", format: "," },
    elapsed_s: { title: `training time, ${unit}`, format: "~g" },
  };
  const chosen = (name) => document.querySelector(`input[name="${name}"]:checked`)?.value;
  const along = (series, axis) => (axis === "elapsed_s" ? series[axis].map((t) => t / seconds) : series[axis]);

  // the same end for every figure, so that one can be read below the other
  const reach = (axis) => 1.02 * Math.max(
    ...data.runs.flatMap((run) => [run.mean, run.evaluation].map((series) => along(series, axis).at(-1) ?? 0)),
  ) || 1;

  function layout(axis, y, extra = {}) {
    const font = { family: getComputedStyle(document.body).fontFamily, size: 12, color: color("soft") };
    const common = {
      gridcolor: color("grid"), linecolor: color("line"), zeroline: false, automargin: true, fixedrange: false,
      tickcolor: color("line"), title: { font, standoff: 8 },
    };
    return {
      font, showlegend: false, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 8, r: 12, t: 30, b: 8 }, hovermode: "closest", dragmode: "zoom",
      hoverlabel: { bgcolor: color("paper"), bordercolor: color("soft"), font: { ...font, color: color("ink") } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: color("soft"), activecolor: color("ink") },
      xaxis: {
        ...common, showgrid: false, showline: true, ticks: "outside", ticklen: 4, range: [0, reach(axis)],
        tickformat: axes[axis].format, title: { ...common.title, text: axes[axis].title }, nticks: 7,
      },
      yaxis: { ...common, nticks: 6, ...y },
      ...extra,
    };
  }

  function trace(run, axis, series, column, more = {}) {
    const paint = color("run-" + run.colour);
    const name = several ? `<b>${text(run.name)}</b><br>` : "";
    return {
      type: "scatter", mode: "lines", x: along(series, axis), y: series[column],
      line: { color: paint, width: 2, dash: several ? dash(run) : "solid" },
      customdata: series.step, marker: { color: paint, symbol: run.marker, size: 8 },
      hovertemplate: `${name}${more.label ?? column} %{y:.4~g}<br>step %{customdata:,}<br>` +
        `%{x:.5~s} ${axis === "elapsed_s" ? unit : axes[axis].title}<extra></extra>`,
      ...more,
    };
  }

  // several dense lines get a few marks each, so that shape tells them apart where colour cannot
  const marked = (run) => (several || run.mean.step.length === 1
    ? { mode: "lines+markers", marker: { color: color("run-" + run.colour), symbol: run.marker, size: 7, maxdisplayed: 7 } }
    : {});

  // ---- figures: each takes the axis and gives traces and layout
  const figures = {
    "plot-metric": (axis) => {
      const column = "metric " + data.metric;
      const traces = data.runs.filter((run) => run.evaluation[column])
        .map((run) => trace(run, axis, run.evaluation, column, { mode: "lines+markers", label: text(data.metric) }));
      const shapes = [], annotations = [];
      if (data.target !== null) {
        shapes.push({
          type: "line", xref: "paper", x0: 0, x1: 1, y0: data.target, y1: data.target, layer: "below",
          line: { color: color("soft"), width: 1, dash: "3px,3px" },
        });
        annotations.push({
          xref: "paper", x: 0, xanchor: "left", y: data.target, yanchor: "bottom", showarrow: false,
          text: `target ${data.target}`, font: { color: color("soft"), size: 12 },
        });
      }
      return [traces, layout(axis, { tickformat: ".4~g" }, { shapes, annotations })];
    },
    "plot-loss": (axis) => {
      const traces = [];
      for (const run of data.runs) {
        const paint = color("run-" + run.colour);
        traces.push(trace(run, axis, run.single, "loss", {
          line: { color: faded(paint, several ? 0.16 : 0.26), width: 1 }, hoverinfo: "skip", hovertemplate: null,
        }));
      }
      for (const run of data.runs) {
        const paint = color("run-" + run.colour);
        traces.push(trace(run, axis, run.mean, "loss", { label: "training loss" }));
        if (run.evaluation["metric loss"]) {
          traces.push(trace(run, axis, run.evaluation, "metric loss", {
            mode: "markers", label: "evaluation loss",
            marker: { color: color("paper"), symbol: run.marker, size: 9, line: { color: paint, width: 2 } },
          }));
        }
      }
      const log = chosen("loss-scale") === "log";
      const positive = data.runs.some((run) => run.mean.loss.some((value) => value > 0));
      return [traces, layout(axis, log && positive
        ? { type: "log", tickformat: ".3~g", ...logTicks(traces), minor: { showgrid: false } }
        : { rangemode: "tozero", tickformat: ".3~g" })];
    },
    "plot-speed": (axis) => [
      data.runs.map((run) => trace(run, axis, run.mean, "samples_per_s", { label: "samples/s", ...marked(run) })),
      layout(axis, { rangemode: "tozero", tickformat: ",.4~r" }),
    ],
    "plot-lr": (axis) => [
      data.runs.map((run) => trace(run, axis, run.mean, "lr", { label: "learning rate", ...marked(run) })),
      layout(axis, { rangemode: "tozero", tickformat: ".3~g" }),
    ],
  };

  // ticks that a person would choose: round steps when the curve spans little, 1 2 5 or whole decades when much
  function logTicks(traces) {
    let low = Infinity, high = 0;
    for (const { y } of traces) for (const v of y) if (v > 0) { low = Math.min(low, v); high = Math.max(high, v); }
    if (high / low > 2000) return { dtick: 1 };
    if (high / low > 8) return { dtick: "D2" };
    const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) ?? 1;
    const tickvals = [];
    for (let n = Math.ceil(low / step); n * step <= high; n++) tickvals.push(Number((n * step).toPrecision(12)));
    return tickvals.length > 1 ? { tickvals } : {};
  }

  let drawn = false;
  function draw() {
    const axis = chosen("axis") ?? "samples";
    for (const [id, figure] of Object.entries(figures)) {
      const place = document.getElementById(id);
      if (!place) continue;
      const [traces, shape] = figure(axis);
      Plotly.react(place, traces, shape, config);
    }
    drawn = true;
  }

  // ---- light and dark: the system's wish, unless the address or the button says otherwise
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  function settle() {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"}`);
    if (drawn) draw();
  }
  function fromAddress() {
    const wish = location.hash.slice(1);
    if (wish === "dark" || wish === "light") root.dataset.theme = wish;
    settle();
  }
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    settle();
  });
  system.addEventListener("change", settle);
  addEventListener("hashchange", fromAddress);
  fromAddress();

  for (const input of document.querySelectorAll(".switch input")) input.addEventListener("change", draw);

  // ---- paper: light colours, every table open
  let before = null;
  addEventListener("beforeprint", () => {
    before = { theme: root.dataset.theme, open: [...document.querySelectorAll("details")].map((one) => one.open) };
    root.dataset.theme = "light";
    document.querySelectorAll("details").forEach((one) => { one.open = true; });
    settle();
  });
  addEventListener("afterprint", () => {
    if (!before) return;
    if (before.theme) root.dataset.theme = before.theme; else delete root.dataset.theme;
    document.querySelectorAll("details").forEach((one, at) => { one.open = before.open[at]; });
    before = null;
    settle();
  });

  draw();
})();
