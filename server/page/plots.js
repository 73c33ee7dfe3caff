// Heat maps and lines on a canvas.

import { drawTimes } from "./drawing.js";
import { floor } from "./intervals.js";

const LEFT = 74;
const BOTTOM = 22;
/** From few to many: lightness grows all the way, so the order is seen without colours (after viridis). */
const COLOURS = [[68, 72, 140], [42, 120, 142], [34, 168, 132], [122, 209, 81], [253, 231, 37]];
/** As `.line-0` and the following ones in page.css. */
const LINES = ["#0072b2", "#009e73", "#d55e00", "#cc79a7"];

/** The colour of a share from 0 to 1. */
function colourOf(share) {
  const at = Math.min(Math.max(share, 0), 1) * (COLOURS.length - 1);
  const from = COLOURS[Math.floor(at)];
  const to = COLOURS[Math.ceil(at)];
  return `rgb(${from.map((each, channel) => Math.round(each + (to[channel] - each) * (at % 1))).join(" ")})`;
}

/** Where the intervals of `scale` are on a canvas. */
function placesOf({ width }, { begin, span, every }) {
  const perNano = (width - LEFT) / span;
  const shift = Number(begin - floor(begin, BigInt(every)));
  return { x: column => LEFT + (column * every - shift) * perNano, step: every * perNano };
}

/** Cells whose colours are the logarithms of their numbers. */
export function drawGrid(canvas, grid, scale, style, named) {
  const { paint, width, height } = canvas;
  const { x, step } = placesOf(canvas, scale);
  const row = (height - BOTTOM - 4) / grid.lows.length;
  const logarithm = Math.log(grid.most) || 1;
  for (const cell of grid.cells) {
    paint.fillStyle = colourOf(Math.log(cell.count) / logarithm);
    const left = Math.max(x(cell.column), LEFT);
    paint.fillRect(left, height - BOTTOM - (cell.row + 1) * row, Math.max(x(cell.column) + step - left - 0.5, 1), Math.max(row - 0.5, 1));
  }
  paint.fillStyle = style.color;
  paint.font = "11px system-ui, sans-serif";
  paint.textAlign = "right";
  const every = Math.ceil(15 / row);
  grid.lows.forEach((low, at) => {
    if (at % every === 0) paint.fillText(named(low), LEFT - 6, height - BOTTOM - at * row - 1);
  });
  paint.textAlign = "left";
  drawTimes({ paint, width, height }, scale, style, { left: LEFT, ground: height - BOTTOM });
}

/** Lines, broken where there is nothing; the scale is logarithmic unless it begins at 0. */
export function drawSeries(canvas, { lines, least, most }, scale, style, named) {
  const { paint, height } = canvas;
  const { x, step } = placesOf(canvas, scale);
  const ground = height - BOTTOM;
  const low = least > 0 ? Math.log10(least) : 0;
  const length = least > 0 ? Math.max(Math.log10(most) - low, 0.1) : most;
  const y = value => ground - 4 - ((least > 0 ? Math.log10(Math.max(value, least)) : value) - low) / length * (ground - 18);
  lines.forEach(({ pieces }, at) => {
    paint.strokeStyle = paint.fillStyle = LINES[at];
    paint.lineWidth = 1.5;
    for (const piece of pieces) {
      paint.beginPath();
      piece.forEach(({ column, value }) => paint.lineTo(Math.max(x(column) + step / 2, LEFT), y(value)));
      paint.stroke();
      // One interval alone would be no line.
      if (piece.length === 1) paint.fillRect(Math.max(x(piece[0].column) + step / 2, LEFT) - 1.5, y(piece[0].value) - 1.5, 3, 3);
    }
  });
  paint.lineWidth = 1;
  paint.fillStyle = style.color;
  paint.font = "11px system-ui, sans-serif";
  paint.textAlign = "right";
  for (let part = 0; part <= 4; part++) {
    const value = least > 0 ? 10 ** (low + length * part / 4) : length * part / 4;
    paint.fillText(named(least > 0 ? Number(value.toPrecision(2)) : value), LEFT - 6, y(value) + 4);
  }
  paint.textAlign = "left";
  drawTimes(canvas, scale, style, { left: LEFT, ground });
}
