// Shows new content in place of old content without disturbing who uses it: elements that did not
// change stay, with their focus and scrolling.

/** Shows `fresh` in `node`. Rows are told apart by `data-key`, other elements by their place. */
export function refresh(node, ...fresh) {
  const focused = node.contains(document.activeElement) ? document.activeElement : null;
  const place = focused && placeOf(focused);
  merge(node, fresh.filter(Boolean));
  if (!focused || node.contains(document.activeElement)) return;
  const candidates = [...node.querySelectorAll("a[href], button, input, select, [tabindex]")];
  const again = candidates.find(each => same(placeOf(each), place))
    || candidates.find(each => place.key && placeOf(each).key === place.key)
    || candidates[0];
  again?.focus();
}

const keyOf = node => node.dataset?.key;

/** What tells an element that can have the focus from the others. */
const placeOf = element => ({
  key: element.closest("[data-key]")?.dataset.key,
  name: element.localName,
  text: element.getAttribute("aria-label") || element.textContent,
});

const same = (one, other) => one.key === other.key && one.name === other.name && one.text === other.text;

function merge(node, fresh) {
  const old = [...node.childNodes];
  const byKey = new Map(old.filter(keyOf).map(each => [keyOf(each), each]));
  const byPlace = old.filter(each => !keyOf(each));
  let at = 0;
  const next = fresh.map(child => merged(keyOf(child) ? byKey.get(keyOf(child)) : byPlace[at++], child));
  const kept = new Set(next);
  for (const each of old) if (!kept.has(each)) each.remove();
  next.forEach((child, at) => {
    if (node.childNodes[at] !== child) node.insertBefore(child, node.childNodes[at] ?? null);
  });
}

/** The old element if it is or becomes the new one, otherwise the new one. */
function merged(before, child) {
  if (!before) return child;
  if (before.isEqualNode(child)) return before;
  // One that waits for its action goes on waiting.
  if (before.localName === "button" && before.disabled && before.textContent === child.textContent) return before;
  const isFrame = before.nodeType === Node.ELEMENT_NODE && before.cloneNode(false).isEqualNode(child.cloneNode(false));
  // What a button does is not to be seen: it is kept only if nothing else changed.
  if (!isFrame || before.localName === "button") return child;
  merge(before, [...child.childNodes]);
  return before;
}
