// Where rows are in time. To skip millions of rows by an offset takes seconds; to count them from
// summaries, and to skip only the last ones, does not.

/** So many rows are skipped by an offset alone. */
export const NEAR = 50_000;
/** Numbers that are asked for to find one place. */
const COUNTS_MAX = 3;

export class Places {
  /**
   * Of `total` rows between `from` and `to`, in order of time. `guess` returns about how many rows are before
   * some times, as `[time, rows]` (intervals.js), or null.
   */
  constructor({ from, to }, total, guess) {
    this.guess = guess;
    this.known = [{ time: from, rows: 0 }, { time: to, rows: total }];
  }

  /**
   * A time at or before that of a row, and exactly how many rows are before that time: few less than `row`,
   * unless that takes too many questions, or a great many events have one time. `countOf` asks how many rows are
   * between two times.
   */
  async before(row, countOf) {
    for (let asked = 0; ; asked++) {
      const at = this.known.findLastIndex(place => place.rows <= row);
      const [low, high] = this.known.slice(at, at + 2);
      if (row - low.rows <= NEAR || asked === COUNTS_MAX || !high) return low;
      const time = this.between(low, high, row - NEAR / 2);
      if (time === null) return low;
      const rows = row - low.rows <= high.rows - row
        ? low.rows + await countOf(low.time, time)
        : high.rows - await countOf(time, high.time);
      this.known.splice(at + 1, 0, { time, rows });
    }
  }

  /** About the time before which there are so many rows; null if there is none between two known ones. */
  between(low, high, row) {
    const span = high.time - low.time;
    if (span < 2n) return null;
    const share = (row - low.rows) / (high.rows - low.rows);
    const guess = this.guess() ?? [];
    const least = aboutAt(guess, low.time);
    const most = aboutAt(guess, high.time);
    const guessed = most > least
      ? timeAt(guess, least + share * (most - least))
      : low.time + BigInt(Math.floor(share * Number(span)));
    // What was counted is not counted again.
    return guessed <= low.time || guessed >= high.time ? low.time + span / 2n : guessed;
  }
}

/** About how many rows are before a time. */
export function aboutAt(guess, time) {
  const at = guess.findIndex(([next]) => next >= time);
  if (at < 1) return at ? guess.at(-1)?.[1] ?? 0 : 0;
  const [[begin, before], [end, after]] = guess.slice(at - 1, at + 1);
  return before + (after - before) * Number(time - begin) / Number(end - begin);
}

/** About the time before which there are so many rows. */
function timeAt(guess, rows) {
  const at = Math.max(guess.findIndex(([, next]) => next >= rows), 1);
  const [[begin, before], [end, after]] = guess.slice(at - 1, at + 1);
  const share = after > before ? Math.min(Math.max((rows - before) / (after - before), 0), 1) : 0;
  return begin + BigInt(Math.floor(share * Number(end - begin)));
}
