// Every matrix of a forward pass, in the order of the computation, with the product that made each of its cells.
//
// A line is {name, formula, values, rows, columns, how}: how(i, j) lists what was multiplied and added for one cell,
// {terms: [[label, factor, factor]], plus: [[label, value]], note}. Terms and sums are the whole cell unless a note says
// what was done to them.

import { rows as blocks, transpose } from "forward.js";

const sub = (name, i, j) => `${name}[${i},${j}]`;

function product(name, a, aName, b, bName, bias) {
  return (i, j) => ({
    terms: a[i].map((x, k) => [`${sub(aName, i, k)} · ${sub(bName, k, j)}`, x, b[k][j]]),
    plus: bias ? [[`${bias.name}[${j}]`, bias.values[j]]] : [],
  });
}

const sum = (...parts) => (i, j) => ({ terms: [], plus: parts.map(([name, values]) => [sub(name, i, j), values[i][j]]) });

export function walk(model, got, names, edits = {}) {
  const { config, params } = model, many = config.n_layers > 1, dHead = config.d_model / config.n_heads;
  const places = got.tokens.map((t, i) => `${i} ${names[t]}`), steps = [];
  const plainRows = (values) => values.map((_, i) => String(i));
  const given = (name, values, labels = plainRows(values), columns = null) =>
    ({ name, formula: "", values, rows: labels, columns, how: () => ({ terms: [], plus: [], note: "Learned: training put this number here." }) });
  const line = (name, formula, values, how, columns = null) => ({ name, formula, values, rows: places, columns, how });
  const biasOf = (name, site, at = null) => {
    if (!params[site]) return null;
    const n = params[site].shape.at(-1), from = at === null ? 0 : at * n;
    return { name, values: Array.from(params[site].data.subarray(from, from + n)) };
  };
  const withBias = (formula, bias) => (bias ? `${formula} + ${bias.name}` : formula);
  const normed = (name, of, ofName, site) => (i) => {
    const mean = of[i].reduce((s, x) => s + x, 0) / of[i].length;
    const variance = of[i].reduce((s, x) => s + (x - mean) ** 2, 0) / of[i].length;
    return { terms: [], plus: [], note: `Row ${i} of ${ofName}, minus its mean ${mean.toFixed(4)}, over its spread ${Math.sqrt(variance + 1e-5).toFixed(4)}, times the weight and plus the bias of ${site}.` };
  };

  const table = blocks(params["embed.W_E"]);
  steps.push({ title: "Look up tokens and positions", lines: [
    given("W_E", table, names),
    line("E", "rows of W_E", got.embed, (i, j) => ({ terms: [], plus: [[sub("W_E", names[got.tokens[i]], j), got.embed[i][j]]] })),
    line("P", "rows of W_pos", got.position, (i, j) => ({ terms: [], plus: [[sub("W_pos", i, j), got.position[i][j]]] })),
    line("X", "E + P", got.start, sum(["E", got.embed], ["P", got.position])),
  ] });
  let stream = "X";
  got.layers.forEach((layer, l) => {
    const at = `blocks.${l}`, tag = many ? `_${l}` : "", lines = [];
    let source = stream;
    if (config.norm === "pre") {
      source = `N${tag}`;
      lines.push(line(source, `norm(${stream})`, layer.seen, normed(source, layer.before, stream, `${at}.ln1`)));
    }
    layer.heads.forEach((h, head) => {
      const key = `${l}.${head}`, t = `${tag}${config.n_heads > 1 ? `_h${head}` : ""}`;
      const silent = edits.heads?.[key] ? "Silenced by you." : null;
      const mine = [];
      for (const name of ["Q", "K", "V"]) {
        const w = blocks(params[`${at}.attn.W_${name}`], head), b = biasOf(`b_${name}${t}`, `${at}.attn.b_${name}`, head);
        mine.push(given(`W_${name}${t}`, w));
        mine.push(line(`${name}${t}`, withBias(`${source} W_${name}${t}`, b), h[name], product(name, layer.seen, source, w, `W_${name}${t}`, b)));
      }
      const kT = transpose(h.K);
      mine.push(line(`S${t}`, `Q${t} K${t}ᵀ / √${dHead}`, h.scores, (i, j) => ({ ...product("S", h.Q, `Q${t}`, kT, `K${t}ᵀ`)(i, j), note: `The sum over √${dHead} = ${Math.sqrt(dHead).toFixed(4)}.` }), places));
      mine.push(line(`A${t}`, `softmax(mask(S${t}))`, h.pattern, (i, j) => (
        edits.patterns?.[key]?.[i] ? { terms: [], plus: [], note: "Forced by you." }
          : j > i ? { terms: [], plus: [], note: "Masked: a position does not see what comes after it." }
            : { terms: [], plus: [], note: `exp(${h.scores[i][j].toFixed(4)}) / sum of exp over the ${i + 1} positions it sees.` }), places));
      mine.push(line(`Z${t}`, `A${t} V${t}`, h.z, (i, j) => (silent ? { terms: [], plus: [], note: silent } : product("Z", h.pattern, `A${t}`, h.V, `V${t}`)(i, j))));
      const wO = blocks(params[`${at}.attn.W_O`], head);
      mine.push(given(`W_O${t}`, wO), line(`O${t}`, `Z${t} W_O${t}`, h.result, product("O", h.z, `Z${t}`, wO, `W_O${t}`)));
      steps.push({ title: `Attend${many ? `, layer ${l}` : ""}${config.n_heads > 1 ? `, head ${head}` : ""}`, lines: [...lines.splice(0), ...mine] });
    });
    const outs = layer.heads.map((h, head) => [`O${tag}${config.n_heads > 1 ? `_h${head}` : ""}`, h.result]);
    const bO = biasOf(`b_O${tag}`, `${at}.attn.b_O`);
    const parts = [[stream, layer.before], ...outs];
    const write = [line(`R${tag}`, withBias(parts.map(([name]) => name).join(" + "), bO), layer.summed, (i, j) => {
      const how = sum(...parts)(i, j);
      return bO ? { ...how, plus: [...how.plus, [`${bO.name}[${j}]`, bO.values[j]]] } : how;
    })];
    stream = `R${tag}`;
    if (config.norm === "post") {
      write.push(line(`NR${tag}`, `norm(${stream})`, layer.middle, normed("NR", layer.summed, stream, `${at}.ln1`)));
      stream = `NR${tag}`;
    }
    steps.push({ title: `Write into the stream${many ? `, layer ${l}` : ""}`, lines: write });
    if (layer.mlp) {
      const wIn = blocks(params[`${at}.mlp.W_in`]), wOut = blocks(params[`${at}.mlp.W_out`]);
      const bIn = biasOf(`b_in${tag}`, `${at}.mlp.b_in`), bOut = biasOf(`b_out${tag}`, `${at}.mlp.b_out`), feed = [];
      let fed = stream;
      if (config.norm === "pre") {
        fed = `N2${tag}`;
        feed.push(line(fed, `norm(${stream})`, layer.fed, normed(fed, layer.middle, stream, `${at}.ln2`)));
      }
      feed.push(given(`W_in${tag}`, wIn), line(`H${tag}`, withBias(`${fed} W_in${tag}`, bIn), layer.pre, product("H", layer.fed, fed, wIn, `W_in${tag}`, bIn)));
      const linear = config.act === "linear";
      feed.push(line(`G${tag}`, linear ? `H${tag}` : `relu(H${tag})`, layer.post, (i, j) => ({ terms: [], plus: [[sub(`H${tag}`, i, j), layer.pre[i][j]]], note: linear ? "" : "Nothing below zero passes." })));
      feed.push(given(`W_out${tag}`, wOut), line(`F${tag}`, withBias(`G${tag} W_out${tag}`, bOut), layer.mlp,
        (i, j) => (edits.mlps?.[l] ? { terms: [], plus: [], note: "Silenced by you." } : product("F", layer.post, `G${tag}`, wOut, `W_out${tag}`, bOut)(i, j))));
      feed.push(line(`Y${tag}`, `${stream} + F${tag}`, layer.together, sum([stream, layer.middle], [`F${tag}`, layer.mlp])));
      stream = `Y${tag}`;
      if (config.norm === "post") {
        feed.push(line(`NY${tag}`, `norm(${stream})`, layer.after, normed("NY", layer.together, stream, `${at}.ln2`)));
        stream = `NY${tag}`;
      }
      steps.push({ title: `Feed forward${many ? `, layer ${l}` : ""}`, lines: feed });
    }
  });
  const last = [];
  if (config.norm === "pre") {
    last.push(line("N_final", `norm(${stream})`, got.read, normed("N_final", got.layers.at(-1).after, stream, "ln_final")));
    stream = "N_final";
  }
  const bU = biasOf("b_U", "unembed.b_U");
  last.push(given("W_U", got.unembed, plainRows(got.unembed), names));
  last.push(line("L", withBias(`${stream} W_U`, bU), got.logits, product("L", got.read, stream, got.unembed, "W_U", bU), names));
  last.push(line("Pr", "softmax(L)", got.probabilities, (i, j) => ({ terms: [], plus: [], note: `exp(${got.logits[i][j].toFixed(4)}) / sum of exp over row ${i} of L.` }), names));
  steps.push({ title: "Read out", lines: last });
  return steps;
}
