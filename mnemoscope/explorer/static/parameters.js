// A model's learned numbers: params[name] = {shape, data}, with data in row-major order.

const cutRows = new WeakMap(); // a parameter is cut into rows once, not once for every forward pass

/** One block of a parameter as rows; `index` picks a head out of a stack. */
export function parameterRows(parameter, index = null) {
  if (!cutRows.has(parameter)) cutRows.set(parameter, new Map());
  const known = cutRows.get(parameter);
  if (!known.has(index)) known.set(index, cut(parameter, index ?? 0));
  return known.get(index);
}

function cut({ shape, data }, index) {
  const [height, width] = shape.length === 1 ? [1, shape[0]] : shape.slice(-2);
  const start = index * height * width;
  const row = (i) => Array.from(data.subarray(start + i * width, start + (i + 1) * width));
  return Array.from({ length: height }, (_, i) => row(i));
}

/** A bias, or null where the model has none; `index` picks a head's row out of a stack. */
export function biasRow(params, name, index = 0) {
  return params[name] ? parameterRows(params[name])[index] : null;
}
