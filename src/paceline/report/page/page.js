(() => {
  const { data, config, color, faded, dash, text, chosen, flat, logTicks } = frame;
  const several = data.runs.length > 1;

  // ---- the horizontal axis
  const longest = Math.max(0, ...data.runs.map((run) => run.mean.elapsed_s.at(-1) ?? 0));
  const [unit, seconds] = longest < 180 ? ["s", 1] : longest < 10800 ? ["min", 60] : ["h", 3600];
  const axes = {
    samples: { title: "samples", format: "~s" },
    step: { title: "steps", format: "," },
    elapsed_s: { title: `training time, ${unit}`, format: "~g" },
  };
  const along = (series, axis) => (axis === "elapsed_s" ? series[axis].map((t) => t / seconds) : series[axis]);

  // the same end for every figure, so that one can be read below the other
  const reach = (axis) => 1.02 * Math.max(
    ...data.runs.flatMap((run) => [run.mean, run.evaluation].map((series) => along(series, axis).at(-1) ?? 0)),
  ) || 1;

  const layout = (axis, y, extra) => flat(
    { range: [0, reach(axis)], tickformat: axes[axis].format, title: { text: axes[axis].title } }, y, extra,
  );

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
    ...Object.fromEntries(data.metrics.map(({ name, id, target }) => [id, (axis) => {
      const column = "metric " + name;
      const traces = data.runs.filter((run) => run.evaluation[column])
        .map((run) => trace(run, axis, run.evaluation, column, { mode: "lines+markers", label: text(name) }));
      const shapes = [], annotations = [];
      if (target !== null) {
        shapes.push({
          type: "line", xref: "paper", x0: 0, x1: 1, y0: target, y1: target, layer: "below",
          line: { color: color("soft"), width: 1, dash: "3px,3px" },
        });
        annotations.push({
          xref: "paper", x: 0, xanchor: "left", y: target, yanchor: "bottom", showarrow: false,
          text: `target ${target}`, font: { color: color("soft"), size: 12 },
        });
      }
      return [traces, layout(axis, { tickformat: ".4~g" }, { shapes, annotations })];
    }])),
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
    "plot-sharpness": (axis) => {
      const traces = [];
      for (const run of data.runs.filter((one) => one.evaluation["metric sharpness"])) {
        const paint = color("run-" + run.colour);
        traces.push(trace(run, axis, run.evaluation, "metric stability_limit", {
          label: "limit of stability", line: { color: paint, width: 1, dash: "2px,3px" },
        }));
        traces.push(trace(run, axis, run.evaluation, "metric sharpness", { mode: "lines+markers", label: "sharpness" }));
      }
      return [traces, layout(axis, { rangemode: "tozero", tickformat: ".3~g" })];
    },
    "plot-noise": (axis) => {
      const traces = [];
      for (const run of data.runs.filter((one) => one.noise)) {
        const paint = color("run-" + run.colour), { noise } = run;
        traces.push(trace(run, axis, noise, "batch", {
          label: "batch", line: { color: paint, width: 1, dash: "2px,3px" },
        }));
        traces.push(trace(run, axis, noise, "noise", {
          mode: "lines+markers", label: "noise scale",
          error_y: {
            type: "data", symmetric: false, color: faded(paint, 0.5), thickness: 1.5, width: 3,
            array: noise.high.map((high, i) => high - noise.noise[i]),
            arrayminus: noise.low.map((low, i) => noise.noise[i] - low),
          },
        }));
      }
      return [traces, layout(axis, { type: "log", tickformat: ".3~s", ...logTicks(traces), minor: { showgrid: false } })];
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

  frame.start(() => {
    const axis = chosen("axis") ?? "samples";
    for (const [id, figure] of Object.entries(figures)) {
      const place = document.getElementById(id);
      if (!place) continue;
      const [traces, shape] = figure(axis);
      Plotly.react(place, traces, shape, config);
    }
  });
})();
