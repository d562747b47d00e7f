  // The columns of the trace, and how numbers are written.
  const data = JSON.parse(document.getElementById("data").textContent);
  const { words, stages: S, works: K, waits: Q, lanes } = data;
  const count = S.i.length;
  const PREDICTED = 1, BAD = 2, BLOCKING = 4;
  const numberOf = new Map(S.i.map((i, k) => [i, k])); // from a stage's number to its place
  const worksOf = new Int32Array(count + 1); // where a stage's works begin: they are in the order of stages
  K.stage.forEach((k) => worksOf[k + 1]++);
  for (let k = 0; k < count; k++) worksOf[k + 1] += worksOf[k];

  const pretty = (s) => s.replaceAll("->", "→").replace(/(\d) us\b/g, "$1 µs").replaceAll("...", "…").replace(/([)r]) x(?=\d)/g, "$1 ×");
  const number = (v) => v >= 99.95 ? v.toFixed(0) : String(+v.toPrecision(3));
  const seconds = (micros, predicted) => {
    if (micros < 0) return "not timed";
    const [factor, unit] = micros >= 999500 ? [1e6, "s"] : micros >= 999.5 ? [1e3, "ms"] : [1, "µs"];
    return (predicted ? "~" : "") + number(micros / factor) + " " + unit;
  };
  const size = (n) => {
    if (!n) return "";
    if (n < 1024) return n + " B";
    let k = -1;
    do { n /= 1024; k++; } while (n >= 1024 && k < 3);
    return (n < 1000 ? String(+n.toPrecision(3)) : n.toFixed(0)) + " " + ["KiB", "MiB", "GiB", "TiB"][k];
  };
  const word = (column, k) => words[S[column][k]];
  const values = (k) => word("said", k) || (data.more[k] === undefined ? "" : data.more[k]); // a text, or the lines of a small matrix
  const kindOf = (k) => S.flags[k] & BAD ? "bad" : S.to[k] !== S.lane[k] ? "transfer" : lanes[S.lane[k]].gpu ? "compute" : "host";

  const html = (name, text, parent, more) => {
    const e = document.createElement(name);
    if (text !== undefined) e.textContent = text;
    for (const key in more || {}) e.setAttribute(key, more[key]);
    if (parent) parent.append(e);
    return e;
  };
