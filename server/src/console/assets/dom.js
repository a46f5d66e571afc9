// Small helpers around the document. Text goes in as text only.

/** The element of this id, which the page has. */
export const byId = (id) => document.getElementById(id);

/**
 * Makes an element.
 * @param {string} tag
 * @param {object} [attributes] null and undefined are left out
 * @param {...(Node|string|null)} children
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? '' : value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** Makes the `dt` and `dd` of facts. */
export function facts(pairs) {
  return pairs.flatMap(([name, value]) => [element('dt', {}, name), element('dd', {}, value)]);
}

/** Says something next to a control. */
export function say(note, text, isError = false) {
  note.classList.toggle('error', isError);
  note.textContent = text;
}

/**
 * Does what a control asks for, once at a time, and says next to it what went wrong.
 * @param {HTMLElement} control busy meanwhile; it keeps the focus
 * @param {HTMLElement} note
 * @param {() => Promise<string|void>} action returns what to say of its success
 * @returns {Promise<boolean>} whether it succeeded
 */
export async function act(control, note, action) {
  if (control.getAttribute('aria-busy') === 'true') return false;
  control.setAttribute('aria-busy', 'true');
  say(note, '');
  try {
    say(note, (await action()) ?? '');
    return true;
  } catch (error) {
    say(note, error.message, true);
    return false;
  } finally {
    control.removeAttribute('aria-busy');
  }
}

/** Asks before something that cannot be taken back. @returns {Promise<boolean>} */
export function confirmed(title, text, yes) {
  const dialog = byId('confirm');
  byId('confirm-title').textContent = title;
  byId('confirm-text').textContent = text;
  byId('confirm-yes').textContent = yes;
  dialog.showModal();
  return new Promise((resolve) => {
    const close = (isYes) => {
      dialog.close();
      resolve(isYes);
    };
    byId('confirm-no').onclick = () => close(false);
    byId('confirm-yes').onclick = () => close(true);
    // By the escape key.
    dialog.oncancel = () => resolve(false);
  });
}
