(() => {
  const { data, config, color, faded, text, chosen, flat } = frame;

  // ---- how numbers of each form are written: on the axis, under the pointer
  const forms = {
    number: ["~g", ".3~g", ""],
    count: ["~s", ",.4~r", ""],
    share: [".0%", ".1%", ""],
    seconds: ["~s", ".3~s", "s"],
    bytes: ["~s", ".3~s", "B"],
    year: ["d", "d", ""],
    name: ["", "", ""],
  };
  const strokes = (dash) => (dash ? dash.split(" ").map((n) => n + "px").join(",") : "solid");

  function hover(one, figure, share) {
    const line = (name, axis, form) => {
      const [, format, suffix] = forms[form];
      return form === "name" ? `%{${name}} ${text(axis.title)}` : `${text(axis.title)} %{${name}:${format}}${suffix}`;
    };
    const y = line("y", figure.y, share ? "share" : figure.y.form);
    return `<b>${text(one.name)}</b><br>${y}<br>${line("x", figure.x, figure.x.form)}%{customdata}<extra></extra>`;
  }
  const said = (words) => words.split("<br>").map((part) => part && "<br>" + text(part)).join("");
  const more = (one) => one.x.map((_, at) => said(one.said[at] ?? ""));

  // an interval about a line is a band, about a point it is whiskers
  function band(one) {
    const paint = color(one.paint);
    const edge = (values, fill) => ({
      type: "scatter", mode: "lines", x: one.x, y: values, hoverinfo: "skip", line: { width: 0, color: paint },
      fillcolor: faded(paint, 0.16), ...(fill ? { fill: "tonexty" } : {}),
    });
    return [edge(one.low, false), edge(one.high, true)];
  }
  const whiskers = (middle, low, high, paint) => ({
    type: "data", symmetric: false, color: faded(paint, 0.6), thickness: 1.5, width: 3,
    array: high.map((end, at) => Math.max(0, end - middle[at])),
    arrayminus: low.map((end, at) => Math.max(0, middle[at] - end)),
  });

  function drawn(one, figure, share, sums) {
    const paint = color(one.paint);
    if (one.kind === "bars") {
      const y = share ? one.y.map((value, at) => value / sums[at]) : one.y;
      return [{
        type: "bar", x: one.x, y, customdata: more(one), marker: { color: paint },
        hovertemplate: hover(one, figure, share),
      }];
    }
    const traces = one.low.length && one.kind !== "points" ? band(one) : [];
    if (one.kind === "band") return traces;
    const line = one.kind === "line";
    traces.push({
      type: "scatter", mode: line ? (one.marker ? "lines+markers" : "lines") : "markers", x: one.x, y: one.y,
      customdata: more(one),
      line: { color: one.wide ? faded(paint, 0.35) : paint, width: one.wide ? 9 : 2, dash: strokes(one.dash) },
      marker: {
        color: one.hollow ? color("paper") : paint, symbol: one.marker || "circle", size: line ? 6 : 8,
        line: { color: paint, width: one.hollow ? 2 : 0 },
      },
      hovertemplate: hover(one, figure),
      ...(!line && one.low.length ? { error_y: whiskers(one.y, one.low, one.high, paint) } : {}),
      ...(!line && one.left.length ? { error_x: whiskers(one.x, one.left, one.right, paint) } : {}),
    });
    return traces;
  }

  // ---- lines across, with their names; on a logarithmic axis shapes take numbers and names their logarithms
  function across(marks, figure, ends) {
    const shapes = [], annotations = [];
    for (const mark of marks) {
      const upright = mark.axis === "x", at = mark.at, to = mark.to ?? mark.at;
      const place = upright
        ? { yref: "paper", y0: 0, y1: 1, x0: at, x1: to } : { xref: "paper", x0: 0, x1: 1, y0: at, y1: to };
      const filled = mark.to !== null;
      shapes.push({
        type: filled ? "rect" : "line", layer: "below", ...place,
        line: { color: color("soft"), width: filled ? 0 : 1, dash: "3px,3px" },
        ...(filled ? { fillcolor: faded(color("soft"), 0.14) } : {}),
      });
      if (!mark.label) continue;
      const spot = figure[mark.axis].log ? Math.log10(at) : at;
      const late = upright && figure.x.log && Math.log10(at / ends[0]) > 0.5 * Math.log10(ends[1] / ends[0]);
      annotations.push({
        showarrow: false, text: text(mark.label), font: { color: color("soft"), size: 12 },
        ...(upright
          ? { x: spot, yref: "paper", y: 1, yanchor: "bottom", xanchor: late ? "right" : "left" }
          : { y: spot, xref: "paper", x: 0, xanchor: "left", yanchor: "bottom" }),
      });
    }
    return { shapes, annotations };
  }

  const numbers = (traces, axis) => traces.flatMap((one) => one[axis]).filter((value) => typeof value === "number");

  // ---- ticks of a logarithmic axis, as a person would put and write them
  const short = (value) => Number(value.toPrecision(4));
  function written(value, form) {
    if (form === "share") return `${short(100 * value)}%`;
    if (form === "seconds") {
      return value >= 1 ? `${short(value)} s` : value >= 1e-3 ? `${short(1e3 * value)} ms` : `${short(1e6 * value)} µs`;
    }
    for (const [size, name] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (form === "bytes" ? value >= size : value >= Math.max(size, 1e4)) {
        return `${short(value / size)}${form === "bytes" ? ` ${name}B` : name}`;
      }
    }
    return form === "bytes" ? `${short(value)} B` : short(value).toLocaleString("en", { maximumFractionDigits: 12 });
  }
  function steps(low, high) {
    const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) ?? rough;
    return Array.from({ length: 12 }, (_, at) => Number(((Math.ceil(low / step) + at) * step).toPrecision(12)))
      .filter((value) => value <= high);
  }
  function ticks(spec, values) {
    const usable = values.filter((value) => value > 0);
    if (!spec.log || !usable.length) return {};
    const low = Math.min(...usable) / 1.02, high = Math.max(...usable) * 1.02;
    const powers = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) powers.push(10 ** power);
    const inside = (list) => list.filter((value) => value >= low && value <= high);
    const finer = [[1, 2, 5], [1, 3]].map((within) => powers.flatMap((one) => within.map((k) => k * one)));
    const lists = (spec.ticks.length ? [spec.ticks] : [...finer, powers]).map(inside);
    const fit = lists.find((list) => list.length <= 6) ?? lists.at(-1);
    const every = Math.ceil(fit.length / 6);
    let places = fit.filter((_, at) => at % every === 0);
    if (places.length < 3 && high / low < 10) places = steps(low, high);
    return { tickvals: places, ticktext: places.map((value) => written(value, spec.form)) };
  }

  function axis(spec, values, share) {
    const [format, , suffix] = forms[share ? "share" : spec.form];
    return {
      title: { text: share ? "share of a step" : spec.title }, tickformat: format, ticksuffix: suffix,
      type: spec.form === "name" ? "category" : spec.log ? "log" : "linear", minor: { showgrid: false },
      ...(spec.zero ? { rangemode: "tozero" } : {}), ...(share ? {} : ticks(spec, values)),
    };
  }

  function figure(own) {
    const share = own.shares && chosen(own.id + "-as") === "share";
    const sums = own.shares ? own.series[0].x.map((_, at) => own.series.reduce((sum, one) => sum + one.y[at], 0)) : [];
    const traces = own.series.flatMap((one) => drawn(one, own, share, sums));
    const along = numbers(traces, "x"), ends = [Math.min(...along), Math.max(...along)];
    // what is marked along y belongs into the figure, also where no point is
    for (const mark of own.marks) {
      if (mark.axis !== "y" || !along.length) continue;
      const unseen = { mode: "markers", marker: { opacity: 0 }, hoverinfo: "skip" };
      traces.push({ type: "scatter", x: [ends[0]], y: [mark.at], ...unseen });
    }
    const shape = flat(axis(own.x, along), axis(own.y, numbers(traces, "y"), share),
      {
        barmode: "stack", bargap: 0.35, ...across(own.marks, own, ends),
        // names of upright lines stand between the figure and the buttons above it
        ...(own.marks.some((mark) => mark.axis === "x" && mark.label) ? { margin: { l: 8, r: 12, t: 48, b: 8 } } : {}),
      });
    return [traces, shape];
  }

  frame.start(() => {
    for (const own of data.figures) {
      const [traces, shape] = figure(own);
      Plotly.react(document.getElementById(own.id), traces, shape, config);
    }
  });
})();
