// The pictures of the time line.

import { floor } from "./intervals.js";
import { many, step, time, timeOfDay } from "./units.js";

const AXIS = 20;
export const LANE = 17;

/** A canvas in device pixels, with a height in pixels of the page. */
export function surface(canvas, height) {
  const width = canvas.clientWidth || canvas.parentNode.clientWidth;
  const scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = `${height}px`;
  }
  const paint = canvas.getContext("2d");
  paint.setTransform(scale, 0, 0, scale, 0, 0);
  paint.clearRect(0, 0, width, height);
  return { paint, width, height };
}

/** Events in intervals as bars, with an axis and the part that is being selected. */
export function drawDensity({ paint, width, height }, data, { begin, span, every }, theme, drag) {
  const ground = height - AXIS;
  const perNano = width / span;
  for (const [at, bucket] of data.buckets) {
    const x = (at * every - data.shift) * perNano;
    const w = Math.max(every * perNano - 0.5, 1);
    let y = ground;
    bucket.parts.forEach((part, group) => {
      if (!part) return;
      const h = part / data.most * (ground - 18);
      paint.fillStyle = data.groups[group].colour;
      paint.fillRect(x, y - h, w, h);
      y -= h;
    });
  }
  drawTimes({ paint, width, height }, { begin, span }, { color: theme.text, borderTopColor: theme.line }, { left: 0, ground });
  paint.fillText(many(data.most, "event"), 4, 12);
  if (drag) {
    const [from, to] = drag;
    paint.fillStyle = "#8886";
    paint.fillRect(Math.min(from, to) * width, 0, Math.abs(to - from) * width, height);
  }
}

/** An axis of times at the height `ground`, from `left` to the right edge. */
export function drawTimes({ paint, width, height }, { begin, span }, style, { left, ground }) {
  const perNano = (width - left) / span;
  paint.strokeStyle = style.borderTopColor;
  paint.fillStyle = style.color;
  paint.font = "11px system-ui, sans-serif";
  paint.beginPath();
  paint.moveTo(left, ground + .5);
  paint.lineTo(width, ground + .5);
  const tick = step(span, Math.max((width - left) / 130, 2));
  const first = floor(begin + BigInt(tick) - 1n, BigInt(tick));
  for (let at = first; at < begin + BigInt(Math.floor(span)); at += BigInt(tick)) {
    const x = left + Math.round(Number(at - begin) * perNano) + .5;
    paint.moveTo(x, ground);
    paint.lineTo(x, ground + 4);
    const text = tick >= 86_400e9 ? time(at, 1e9).slice(0, 10) : timeOfDay(at, tick);
    if (x + 3 + paint.measureText(text).width <= width) paint.fillText(text, x + 3, height - 6);
  }
  paint.stroke();
}

/** Slices in their first `most` lanes; returns where each one is. */
export function drawSlices({ paint, width }, { lanes }, { span }, theme, { most, colourOf }) {
  const perNano = width / span;
  const boxes = [];
  let top = 2;
  paint.font = "11px system-ui, sans-serif";
  for (const lane of lanes) {
    if (top >= most * LANE) break;
    paint.strokeStyle = theme.line;
    paint.beginPath();
    paint.moveTo(0, top + .5);
    paint.lineTo(width, top + .5);
    paint.stroke();
    const left = paint.measureText(lane.title).width + 10;
    for (const { event, start, end, depth } of lane.slices) {
      // What began before or ends after is drawn only as far as it is seen.
      const x = Math.max(start * perNano, -1);
      const box = { x, y: top + depth * LANE + 1, w: Math.max(Math.min(end * perNano, width + 1) - x, 1), event };
      if (box.y >= most * LANE) continue;
      paint.fillStyle = colourOf(event);
      paint.fillRect(box.x, box.y, box.w, LANE - 3);
      if (box.w > 40) {
        paint.save();
        paint.beginPath();
        paint.rect(box.x, box.y, box.w - 3, LANE);
        paint.clip();
        paint.fillStyle = "#fff";
        // Not below the title of the lane.
        paint.fillText(String(event.name ?? ""), Math.max(box.x + 3, depth ? 3 : left), box.y + 11);
        paint.restore();
      }
      boxes.push(box);
    }
    // Letters have an edge, so that both they and the slices below them are seen.
    paint.strokeStyle = theme.ground;
    paint.lineWidth = 3;
    paint.lineJoin = "round";
    paint.strokeText(lane.title, 4, top + 12);
    paint.lineWidth = 1;
    paint.fillStyle = theme.text;
    paint.fillText(lane.title, 4, top + 12);
    top += lane.ends.length * LANE;
  }
  return boxes;
}
