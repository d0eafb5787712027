// The batches of a trace: bars of what was added and removed, a slider, buttons, and play.
import { count, fill, h } from "../dom.js";

const HEIGHT = 36;
const PLAY = 700;

/** `onBatch(number)` is called when another batch is chosen; `scrubber.show(first, batches, ended)`, `bars(activity)`. */
export function scrubber({ onBatch, signal }) {
  let least = 0;
  let last = 0;
  let ended = true;
  let playing = null;
  const strip = h("div", { class: "dbg-strip", "aria-hidden": "true", onclick: jump });
  const slider = h("input", { type: "range", min: 0, max: 0, step: 1, "aria-label": "Batch", oninput: () => choose(Number(slider.value)) });
  const label = h("output", { class: "dbg-batch" });
  const play = button("Play", "Play", () => (playing ? stop() : start()));
  const element = h(
    "div",
    { class: "dbg-scrubber" },
    h(
      "div",
      { class: "bar" },
      button("First batch", "|◀", () => choose(least)),
      button("Previous batch", "◀", () => choose(number() - 1)),
      play,
      button("Next batch", "▶", () => choose(number() + 1)),
      button("Last batch", "▶|", () => choose(last)),
      label,
    ),
    strip,
    slider,
  );
  signal.addEventListener("abort", stop);

  function button(title, text, onclick) {
    return h("button", { type: "button", title, "aria-label": title, onclick }, text);
  }

  const number = () => Number(slider.value);

  function choose(next, call = true) {
    const batch = Math.max(least, Math.min(last, next));
    slider.value = batch;
    const end = ended && batch === last;
    slider.setAttribute("aria-valuetext", end ? "the end of the input" : `batch ${batch}`);
    fill(label, end ? `batch ${count(batch)}: the end of the input` : `batch ${count(batch)} of ${count(least)} … ${count(ended ? last - 1 : last)}`);
    const mark = strip.querySelector(".dbg-now");
    if (mark) mark.setAttribute("x", (batch - least) / mark.dataset.step);
    if (call) onBatch(batch);
  }

  function jump(event) {
    const box = strip.getBoundingClientRect();
    stop();
    choose(least + Math.floor(((event.clientX - box.left) / box.width) * (last - least + 1)));
  }

  function start() {
    if (number() >= last) choose(least);
    playing = setInterval(() => (number() < last ? choose(number() + 1) : stop()), PLAY);
    fill(play, "Pause");
    play.setAttribute("aria-label", "Pause");
    play.title = "Pause";
  }

  function stop() {
    clearInterval(playing);
    playing = null;
    fill(play, "Play");
    play.setAttribute("aria-label", "Play");
    play.title = "Play";
  }

  return {
    element,
    show(first, batches, isEnded) {
      least = first;
      last = first + batches - 1;
      ended = isEnded;
      slider.min = least;
      slider.max = last;
    },
    choose,
    /** Bars of {step, added, removed, late}. */
    bars({ step, added, removed, late }) {
      const most = Math.max(1, ...added, ...removed);
      const scale = (value) => (value ? Math.max(1.5, (Math.sqrt(value / most) * HEIGHT) / 2) : 0);
      const wide = Math.min(0.85, 1 - 0.1);
      const bars = added.flatMap((value, i) => [
        value > 0 && h("rect", { class: "dbg-plus", x: i, width: wide, y: HEIGHT / 2 - scale(value), height: scale(value) }),
        removed[i] > 0 && h("rect", { class: "dbg-minus", x: i, width: wide, y: HEIGHT / 2, height: scale(removed[i]) }),
        late[i] > 0 && h("rect", { class: "dbg-late", x: i, width: wide, y: 0, height: 2.5 }),
      ]);
      const now = h("rect", { class: "dbg-now", x: (number() - least) / step, y: 0, width: 1, height: HEIGHT, "data-step": step });
      fill(strip, h("svg", { viewBox: `0 0 ${added.length} ${HEIGHT}`, preserveAspectRatio: "none" }, now, bars));
    },
    get batch() {
      return number();
    },
  };
}
