// The parts of a model by the names that addresses have for them:
//
//   embed         the embedding
//   0.1           layer 0, head 1
//   mlp0          the feed-forward part of layer 0
//   unembed       the unembedding
//
// Heads and feed-forward parts can be knocked out; the other two cannot.

import { hasAttention, hasMlp } from "forward.js";

/** The parts of a layer: its heads, then its feed-forward part. */
export function partsOfLayer(model, layer) {
  const { n_heads: nHeads } = model.config;
  const heads = Array.from({ length: hasAttention(model, layer) ? nHeads : 0 }, (_, head) =>
    `${layer}.${head}`);
  return hasMlp(model, layer) ? [...heads, `mlp${layer}`] : heads;
}

/** Everything that can be knocked out. */
export function listParts(model) {
  return Array.from({ length: model.config.n_layers }, (_, layer) =>
    partsOfLayer(model, layer)).flat();
}

/** Everything whose numbers can be opened. */
export function listOpenable(model) {
  return ["embed", ...listParts(model), "unembed"];
}

export const isHead = (part) => part.includes(".");
export const isMlp = (part) => part.startsWith("mlp");

/** The layer and the head of a part; a feed-forward part has no head. */
export function placeOf(part) {
  const [layer, head] = part.replace("mlp", "").split(".").map(Number);
  return { layer, head };
}

/** What a part is called in a sentence; a single layer, or a single head, is not counted. */
export function namePart({ config }, part) {
  if (part === "embed") return "embedding";
  if (part === "unembed") return "unembedding";
  const { layer, head } = placeOf(part);
  const what = isMlp(part) ? "feed-forward" : `head ${head}`;
  return config.n_layers > 1 ? `layer ${layer}, ${what}` : what;
}
