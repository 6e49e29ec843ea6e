(() => {
  const { data, config, color, faded, dash, text, flat } = frame;

  // both figures have the same samples along them, so that one can be read beside the other
  const ends = data.curves.map((run) => run.ended ?? 0);
  const reach = 1.04 * Math.max(1, ...ends);

  const hover = (run, ...rows) => [`<b>${text(run.name)}</b>`, `seed ${text(run.seed)}`, ...rows].join("<br>") +
    "<extra></extra>";

  function accuracy() {
    // the chosen configuration is drawn last, over the others
    const traces = [...data.curves].reverse().map((run) => {
      const paint = color("run-" + run.colour);
      const alone = run.samples.length === 1;
      return {
        type: "scatter", mode: alone ? "markers" : "lines", x: run.samples, y: run.accuracy,
        line: { color: run.chosen ? paint : faded(paint, 0.75), width: run.chosen ? 3.2 : 1.5, dash: dash(run) },
        marker: { color: paint, symbol: run.marker, size: 7 },
        hovertemplate: hover(run, "%{y:.1%} after %{x:,} samples"),
      };
    });
    const shapes = [], annotations = [];
    if (data.target !== null) {
      shapes.push({
        type: "line", xref: "paper", x0: 0, x1: 1, y0: data.target, y1: data.target,
        line: { color: color("ink"), width: 1, dash: "4px,3px" },
      });
      annotations.push({
        xref: "paper", x: 0, xanchor: "left", y: data.target, yanchor: "bottom", showarrow: false,
        text: `target ${(100 * data.target).toFixed(1)}%`, font: { color: color("ink"), size: 12 },
      });
      // the target belongs into the figure, also where no training came near it
      traces.push({
        type: "scatter", mode: "markers", x: [0], y: [data.target], marker: { opacity: 0 }, hoverinfo: "skip",
      });
    }
    return [traces, flat(
      { range: [0, reach], tickformat: "~s", title: { text: "samples" } },
      { tickformat: ".0%", title: { text: "accuracy" } }, { shapes, annotations },
    )];
  }

  function samples() {
    const names = [], seeds = [];
    for (const run of data.curves) {
      names[run.place] = run.name;
      (seeds[run.place] ??= []).push(run);
    }
    // seeds of one configuration lie below each other: they often need the same number of epochs
    const row = (run) => run.place + 0.16 * (seeds[run.place].indexOf(run) - (seeds[run.place].length - 1) / 2);
    const traces = data.curves.filter((run) => run.ended !== null).map((run) => {
      const paint = color("run-" + run.colour), held = run.reached !== null;
      return {
        type: "scatter", mode: "markers", x: [held ? run.reached : run.ended], y: [row(run)],
        marker: {
          color: held ? paint : color("paper"), symbol: run.marker, size: run.chosen ? 11 : 8,
          line: { color: paint, width: held ? 0 : 2 },
        },
        hovertemplate: hover(run, held ? "target after %{x:,} samples" : "ended after %{x:,} samples without it"),
      };
    });
    // names of configurations may be long: cut here, in full under the pointer, in the legend and in the table
    const short = (name) => (name.length > 16 ? name.slice(0, 15) + "…" : name);
    return [traces, flat(
      { range: [0, reach], tickformat: "~s", title: { text: "samples" } },
      {
        tickvals: names.map((_, at) => at), ticktext: names.map((name) => text(short(name))),
        range: [names.length - 0.4, -0.6], nticks: undefined,
      },
    )];
  }

  frame.start(() => {
    for (const [id, figure] of [["plot-accuracy", accuracy], ["plot-samples", samples]]) {
      const place = document.getElementById(id);
      if (!place) continue;
      const [traces, shape] = figure();
      Plotly.react(place, traces, shape, config);
    }
  });
})();
